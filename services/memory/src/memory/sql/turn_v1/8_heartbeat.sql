-- One call per worker and second: renew, report, adopt, relay.

create function renew(p_worker text, p_leases jsonb, p_ttl float8) returns jsonb
language sql set search_path = turn_v1, public as $$
    with asked as (select * from jsonb_to_recordset(p_leases) as l(key text, epoch bigint)),
    mine as (select c.key from conversation c join asked using (key, epoch)
             where c.owner = p_worker and c.lease_until > '-infinity'
             order by c.key for no key update of c),
    renewed as (update conversation c
                set lease_until = clock_timestamp() + make_interval(secs => p_ttl)
                from mine where c.key = mine.key
                returning c.key, c.stop_generation, c.stop_seq, turn_v1.controls(c) as controls)
    select jsonb_build_object(
        'lost', (select coalesce(jsonb_agg(key), '[]') from asked
                 where key not in (select key from renewed)),
        'controls', (select coalesce(jsonb_object_agg(r.key, r.controls), '{}') from renewed r
                     where r.stop_seq > 0 and exists (
                         select 1 from mailbox m where m.key = r.key and m.state = 'waiting'
                         and (m.generation, m.seq) <= (r.stop_generation, r.stop_seq))))
$$;

create function renew_calls(p_worker text, p_calls jsonb, p_ttl float8) returns jsonb
language sql set search_path = turn_v1, public as $$
    with asked as (select * from jsonb_to_recordset(p_calls) as l(call_id text, epoch bigint)),
    mine as (select k.call_id from call k join asked using (call_id, epoch)
             where k.owner = p_worker and k.state = 'running' and k.lease_until > '-infinity'
             order by k.call_id for no key update of k),
    renewed as (update call k set lease_until = clock_timestamp() + make_interval(secs => p_ttl)
                from mine where k.call_id = mine.call_id returning k.call_id, k.cancel_reason)
    select jsonb_build_object(
        'lost_calls', (select coalesce(jsonb_agg(call_id), '[]') from asked
                       where call_id not in (select call_id from renewed)),
        'cancels', (select coalesce(jsonb_agg(call_id), '[]') from renewed
                    where cancel_reason is not null))
$$;

-- Conversations that nobody renews; those that others work on right now are skipped.
create function adopt(p_worker text, p_ttl float8, p_max int) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare
    adopted jsonb := '[]'; c conversation;
    in_grace boolean := grace_until(p_ttl) > clock_timestamp();
begin
    for c in select * from conversation
            where owner is not null and lease_until < clock_timestamp()
              and (lease_until = '-infinity' or not in_grace)
            order by key limit least(p_max, 8) for no key update skip locked loop
        if exists (select 1 from mailbox where key = c.key and state = 'waiting') then
            adopted := adopted || take(c, p_worker, p_ttl, 32768);
        else
            update conversation set owner = null where key = c.key;
        end if;
    end loop;
    return adopted;
end $$;

create function heartbeat(p_worker text, p_leases jsonb, p_calls jsonb, p_published jsonb,
    p_adopt int, p_ttl float8, p_relay_after float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare told jsonb; adopted jsonb := '[]'; relayed jsonb := '[]';
begin
    told := renew(p_worker, p_leases, p_ttl);
    if p_calls <> '[]' then
        told := told || renew_calls(p_worker, p_calls, p_ttl);
    end if;
    if p_published <> '[]' then
        perform note_published(p_published);
    end if;
    if p_adopt > 0 then
        adopted := adopt(p_worker, p_ttl, p_adopt);
        relayed := relay(p_relay_after);
    end if;
    if adopted = '[]' then
        -- Losing the last renewals, reports and claims in a crash costs nothing: no flush.
        perform set_config('synchronous_commit', 'off', true);
    end if;
    return told || jsonb_build_object('adopted', adopted, 'relay', relayed,
        'grace_s', greatest(0, extract(epoch from grace_until(p_ttl) - clock_timestamp())));
end $$;
