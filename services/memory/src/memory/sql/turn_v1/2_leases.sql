-- Leases: who may act for a conversation, and until when nobody else does.
-- A holder is who has the epoch, not who has time left: an expired lease that nobody took is
-- still good. Only handing it back ends it.

-- Leases that expired before this moment could have been renewed; later ones perhaps not.
create function grace_until(p_ttl float8) returns timestamptz
language sql stable set search_path = turn_v1, public as $$
    select greatest(until, pg_postmaster_start_time() + make_interval(secs => p_ttl)) from grace
$$;

-- One grace at a time, at most a TTL long, then 30 s without; a restart starts one anyway.
create function start_grace(p_ttl float8, p_restart boolean) returns void
language sql set search_path = turn_v1, public as $$
    update grace set until = clock_timestamp() + make_interval(secs => p_ttl)
    where p_restart or until < clock_timestamp() - interval '30 s'
$$;

create function is_live(c conversation, p_ttl float8) returns boolean language sql volatile as $$
    select c.owner is not null and c.lease_until > '-infinity'
        and greatest(c.lease_until, turn_v1.grace_until(p_ttl)) > clock_timestamp()
$$;

create function is_held(c conversation, p_epoch bigint) returns boolean language sql immutable as $$
    select coalesce(c.epoch = p_epoch and c.owner is not null and c.lease_until > '-infinity', false)
$$;

-- Locks the conversation for its holder.
create function held(p_key text, p_epoch bigint) returns conversation
language plpgsql set search_path = turn_v1, public as $$
declare c conversation;
begin
    select * into c from conversation where key = p_key for no key update;
    if not is_held(c, p_epoch) then
        perform fail('PH001', 'this lease is no longer held');
    end if;
    return c;
end $$;

-- Locks the conversation for anybody; makes it if it is new.
create function locked(p_key text, p_address text) returns conversation
language plpgsql set search_path = turn_v1, public as $$
declare c conversation;
begin
    select * into c from conversation where key = p_key for no key update;
    if not found then
        insert into conversation (key, address) values (p_key, p_address) on conflict do nothing;
        select * into c from conversation where key = p_key for no key update;
    end if;
    if c.address = '' and p_address <> '' then
        update conversation set address = p_address where key = p_key returning * into c;
    end if;
    return c;
end $$;

-- Time without a live lease goes back to the deadline once, at most its own length (R8).
create function give_back(p_key text, p_idle_ms bigint) returns void
language sql set search_path = turn_v1, public as $$
    update mailbox m set given_back_ms = least(p_idle_ms, greatest(0,
            (s.body->>'deadline_ms')::bigint - extract(epoch from s.recorded_at) * 1000))
        from step s
        where m.key = p_key and m.state = 'waiting' and m.given_back_ms = 0
          and s.key = m.key and s.generation = m.generation and s.seq = m.seq
          and s.run_id = '' and s.n = 0
$$;

-- Takes the lease; the caller holds the row lock and has seen that it is free or expired.
create function take(c conversation, p_worker text, p_ttl float8, p_bytes int) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare moment timestamptz := clock_timestamp(); raised bigint;
begin
    if c.owner is not null then
        perform give_back(c.key, (greatest(0, extract(epoch from moment - coalesce(c.idle_since,
            case when c.lease_until > '-infinity' then c.lease_until end, moment))) * 1000)::bigint);
        -- A turn under way that was not handed back: its worker vanished (R10).
        update mailbox set vanished = vanished + 1, begun_epoch = null
            where key = c.key and state = 'waiting' and begun_epoch is not null;
    end if;
    select greatest(c.epoch, (generation - 1) << 32) + 1 into raised from era;
    update conversation set epoch = raised, owner = p_worker, idle_since = null,
        lease_until = moment + make_interval(secs => p_ttl) where key = c.key;
    return jsonb_build_object('key', c.key, 'address', c.address,
        'tenant_id', c.tenant_id, 'epoch', raised,
        'checked', position_json(c.checked_generation, c.checked_seq),
        'waiting', waiting(c.key), 'unpublished', unpublished(c.key, p_bytes),
        'took_over', c.owner);
end $$;

-- What this holder began is not under way any more, and was no attempt.
create function unbegin(p_key text, p_epoch bigint) returns void
language sql set search_path = turn_v1, public as $$
    update mailbox set attempts = greatest(0, attempts - 1), begun_epoch = null
        where key = p_key and state = 'waiting' and begun_epoch = p_epoch
$$;

-- Hands a conversation back: free at once for others, the attempt un-counted (R7).
create function release(p_key text, p_epoch bigint) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation;
begin
    select * into c from conversation where key = p_key for no key update;
    if c.epoch = p_epoch and not is_held(c, p_epoch) then  -- a repeat
        return '{}';
    end if;
    c := held(p_key, p_epoch);
    perform unbegin(p_key, p_epoch);
    update conversation set lease_until = '-infinity', idle_since = clock_timestamp(),
            owner = case when exists (select 1 from mailbox where key = p_key
                                      and state = 'waiting') then owner end
        where key = p_key;
    return '{}';
end $$;
