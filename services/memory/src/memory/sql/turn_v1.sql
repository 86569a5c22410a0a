-- The turn API, version 1. Rules:
-- * One function per call, READ COMMITTED. The conversation row is the only lock and is taken
--   first, so that each later statement sees what earlier holders committed.
-- * The clock is read after the lock; only this server's clock counts. A holder is who has the
--   epoch, not who has time left: an expired lease that nobody took is still good.
-- * Refusals are exceptions, so that nothing is half-written: PH001 fenced, PH002 bad request.
-- * Every call may be repeated blindly.
-- A change to a released function is a new schema (turn_v2); both are served during a roll-out.
create schema turn_v1;
set local search_path = turn_v1, public;

create function fail(p_state text, p_message text) returns void language plpgsql as $$
begin
    raise exception using errcode = p_state, message = p_message;
end $$;

create function position_json(p_generation bigint, p_seq bigint) returns jsonb
language sql immutable as $$
    select jsonb_build_object('generation', p_generation, 'seq', p_seq)
$$;

-- Who waits, oldest first; bodies come with `begin`.
create function waiting(p_key text) returns jsonb language sql stable set search_path = turn_v1, public as $$
    select coalesce(jsonb_agg(jsonb_build_object('generation', generation, 'seq', seq,
        'source_id', source_id, 'attempts', attempts, 'vanished', vanished)
        order by generation, seq), '[]')
    from (select * from mailbox where key = p_key and state = 'waiting'
          order by generation, seq limit 10) w
$$;

create function outgoing(o outbound) returns jsonb language sql immutable as $$
    select jsonb_build_object('key', o.key, 'generation', o.generation, 'seq', o.seq,
        'id', o.id, 'body', o.body)
$$;

-- Oldest first, at most 256 kB but at least one; the relay brings the rest.
create function unpublished(p_key text) returns jsonb language sql stable set search_path = turn_v1, public as $$
    select coalesce(jsonb_agg(outgoing(u.o) order by u.generation, u.seq), '[]')
    from (select o, o.generation, o.seq,
                 sum(octet_length(o.body::text)) over (order by o.generation, o.seq)
                     - octet_length(o.body::text) as before
          from outbound o where key = p_key and not published and failed is null) u
    where u.before < 262144
$$;

create function controls(c conversation) returns jsonb language sql immutable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'stop_upto', case when c.stop_seq > 0
            then turn_v1.position_json(c.stop_generation, c.stop_seq) end,
        'new_at', case when c.new_seq > 0
            then turn_v1.position_json(c.new_generation, c.new_seq) end))
$$;

-- Leases that expired before this moment could have been renewed; later ones perhaps not.
create function grace_until(p_ttl float8) returns timestamptz language sql stable set search_path = turn_v1, public as $$
    select greatest(until, pg_postmaster_start_time() + make_interval(secs => p_ttl)) from grace
$$;

create function is_live(c conversation, p_ttl float8) returns boolean language sql volatile as $$
    select c.owner is not null and c.lease_until > '-infinity'
        and greatest(c.lease_until, turn_v1.grace_until(p_ttl)) > clock_timestamp()
$$;

-- One grace at a time, at most a TTL long, then 30 s without; a restart starts one anyway.
create function start_grace(p_ttl float8, p_restart boolean) returns void
language sql set search_path = turn_v1, public as $$
    update grace set until = clock_timestamp() + make_interval(secs => p_ttl)
    where p_restart or until < clock_timestamp() - interval '30 s'
$$;

-- Locks the conversation for its holder; FOR SHARE where only rows beside it change.
create function held(p_key text, p_epoch bigint) returns conversation
language plpgsql set search_path = turn_v1, public as $$
declare c conversation;
begin
    select * into c from conversation where key = p_key for no key update;
    if c.epoch is distinct from p_epoch or c.owner is null then
        perform fail('PH001', 'this lease is no longer held');
    end if;
    return c;
end $$;

create function held_shared(p_key text, p_epoch bigint) returns conversation
language plpgsql set search_path = turn_v1, public as $$
declare c conversation;
begin
    -- A plain read would let a take-over miss a step that is being written (measured).
    select * into c from conversation where key = p_key for share;
    if c.epoch is distinct from p_epoch or c.owner is null then
        perform fail('PH001', 'this lease is no longer held');
    end if;
    return c;
end $$;

-- Stores a stream message under the conversation's lock and says what became of it.
create function store(c conversation, p_generation bigint, p_seq bigint, p_source text,
    p_body jsonb, p_reason text, p_limit int) returns mailbox
language plpgsql set search_path = turn_v1, public as $$
declare m mailbox; s text := 'waiting';
begin
    if p_body is null then
        s := 'failed';
    elsif (p_generation, p_seq) <= (c.stop_generation, c.stop_seq) then
        s := 'stopped';
    elsif (select count(*) from (select 1 from mailbox where key = c.key and state = 'waiting'
                                 limit p_limit) w) >= p_limit then
        s := 'refused';
    end if;
    insert into mailbox (key, generation, seq, source_id, body, state, reason)
        values (c.key, p_generation, p_seq, p_source, p_body, s, p_reason)
        on conflict do nothing;
    select * into m from mailbox where key = c.key and source_id = p_source;
    if not found then
        perform fail('PH002', 'another message is stored at this stream position');
    end if;
    return m;
end $$;

-- Takes the lease; the caller holds the row lock and has seen that it is free or expired.
create function take(c conversation, p_worker text, p_ttl float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare
    moment timestamptz := clock_timestamp();
    idle_ms bigint;
    raised bigint;
begin
    if c.owner is not null then
        idle_ms := greatest(0, extract(epoch from moment - coalesce(c.idle_since,
            case when c.lease_until > '-infinity' then c.lease_until end, moment)) * 1000);
        -- Time without a live lease goes back to the deadline once, at most its own length (R8).
        update mailbox m set given_back_ms = least(idle_ms, greatest(0,
                (s.body->>'deadline_ms')::bigint - extract(epoch from s.recorded_at) * 1000))
            from step s
            where m.key = c.key and m.state = 'waiting' and m.given_back_ms = 0
              and s.key = m.key and s.generation = m.generation and s.seq = m.seq
              and s.run_id = '' and s.n = 0;
    end if;
    update mailbox set vanished = vanished + 1, begun_epoch = null
        where key = c.key and state = 'waiting' and begun_epoch is not null;
    select greatest(c.epoch, (generation - 1) << 32) + 1 into raised from era;
    update conversation set epoch = raised, owner = p_worker, idle_since = null,
        lease_until = moment + make_interval(secs => p_ttl) where key = c.key;
    return jsonb_build_object('key', c.key, 'address', c.address,
        'tenant_id', c.tenant_id, 'epoch', raised,
        'checked', position_json(c.checked_generation, c.checked_seq),
        'waiting', waiting(c.key), 'unpublished', unpublished(c.key), 'took_over', c.owner);
end $$;

create function open(p_key text, p_address text, p_generation bigint, p_seq bigint, p_source text,
    p_body jsonb, p_reason text, p_worker text, p_ttl float8, p_limit int) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation; m mailbox; live boolean; idle boolean;
begin
    -- Fast path without lock or write. Safe: said only of a stored message under a live lease,
    -- whose holder looks for what waits under the lock, later.
    select * into m from mailbox where key = p_key and source_id = p_source;
    if found then
        select * into c from conversation where key = p_key;
        live := is_live(c, p_ttl);
    else
        insert into conversation (key, address) values (p_key, p_address) on conflict do nothing;
    end if;
    if live is not true then
        select * into c from conversation where key = p_key for no key update;
        if c.address = '' and p_address <> '' then
            update conversation set address = p_address where key = p_key returning * into c;
        end if;
        m := store(c, p_generation, p_seq, p_source, p_body, p_reason, p_limit);
        live := is_live(c, p_ttl);
        idle := not exists (select 1 from mailbox where key = p_key and state = 'waiting');
        if not live and not idle then
            return jsonb_build_object('state', 'opened', 'message', m.state,
                'lease', take(c, p_worker, p_ttl));
        end if;
    end if;
    return jsonb_build_object('state', case when m.state = 'waiting' then 'busy' else 'done' end,
        'message', m.state, 'unpublished', case when m.state = 'waiting' then '[]'
                                                else unpublished(p_key) end);
end $$;

create function admit(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_source text, p_body jsonb, p_reason text, p_limit int) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation; m mailbox;
begin
    c := held(p_key, p_epoch);
    m := store(c, p_generation, p_seq, p_source, p_body, p_reason, p_limit);
    if (p_generation, p_seq) > (c.checked_generation, c.checked_seq) then
        update conversation set checked_generation = p_generation, checked_seq = p_seq
            where key = p_key;
    end if;
    return jsonb_build_object('message', m.state, 'waiting', waiting(p_key));
end $$;

-- Messages of a list of positions that still wait, in order: at most 256 kB, at least one.
create function turn_messages(p_key text, p_positions jsonb) returns setof mailbox
language sql stable set search_path = turn_v1, public as $$
    select (w.m).* from (
        select m, sum(octet_length(m.body::text)) over (order by m.generation, m.seq)
                   - octet_length(m.body::text) as before
        from mailbox m
        join jsonb_to_recordset(p_positions) as p(generation bigint, seq bigint)
            on m.generation = p.generation and m.seq = p.seq
        where m.key = p_key and m.state = 'waiting') w
    where w.before < 262144
    order by (w.m).generation, (w.m).seq
$$;

-- Steps of a run after a number, at most 384 kB but at least one.
create function steps_after(p_key text, p_generation bigint, p_seq bigint, p_run text, p_after int)
returns jsonb language sql stable set search_path = turn_v1, public as $$
    with sized as (
        select n, kind, body, sum(octet_length(body::text)) over (order by n)
                                  - octet_length(body::text) as before
        from step where key = p_key and generation = p_generation and seq = p_seq
            and run_id = p_run and n > p_after)
    select jsonb_build_object(
        'steps', coalesce(jsonb_agg(jsonb_build_object('run_id', p_run, 'n', n, 'kind', kind,
            'body', body) order by n) filter (where before < 393216), '[]'),
        'more', coalesce(bool_or(before >= 393216), false))
    from sized
$$;

-- Newest messages of a conversation before a turn, in time order, at most 192 kB.
create function history_before(c conversation, p_generation bigint, p_seq bigint, p_limit int)
returns jsonb language sql stable set search_path = turn_v1, public as $$
    select coalesce(jsonb_agg(message order by n), '[]') from (
        select n, message, sum(octet_length(message::text)) over (order by n desc) as size
        from (select n, message from history
              where organisation = c.organisation and agent_id = 'main' and tenant_id = c.tenant_id
                and ((p_generation, p_seq) <= (c.new_generation, c.new_seq)
                     or (generation, seq) > (c.new_generation, c.new_seq))
              order by n desc limit p_limit) newest) sized
    where size <= 196608
$$;

create function begin(p_key text, p_epoch bigint, p_manifest jsonb, p_history int) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare
    c conversation; g bigint; s bigint; manifest jsonb; messages jsonb; positions jsonb;
    found_steps jsonb; tries int; lost int; back bigint; last_event bigint;
begin
    c := held_shared(p_key, p_epoch);
    g := (p_manifest->'positions'->0->>'generation')::bigint;
    s := (p_manifest->'positions'->0->>'seq')::bigint;
    select body into manifest from step
        where key = p_key and generation = g and seq = s and run_id = '' and n = 0;
    select jsonb_agg(jsonb_build_object('generation', generation, 'seq', seq, 'source_id', source_id,
               'attempts', attempts, 'vanished', vanished, 'body', body) order by generation, seq),
           jsonb_agg(position_json(generation, seq) order by generation, seq)
        into messages, positions
        from turn_messages(p_key, coalesce(manifest, p_manifest)->'positions');
    if messages is null or (positions->0) is distinct from position_json(g, s) then
        perform fail('PH002', 'the head of this turn no longer waits');
    end if;
    if manifest is null then
        manifest := p_manifest || jsonb_build_object('positions', positions);
        insert into step (key, generation, seq, n, kind, body, epoch)
            values (p_key, g, s, 0, 'manifest', manifest, p_epoch);
    end if;
    -- The same holder asking again is not another attempt.
    update mailbox set attempts = attempts + (begun_epoch is distinct from p_epoch)::int,
            begun_epoch = p_epoch
        where key = p_key and state = 'waiting' and (generation, seq) in (
            select generation, seq from jsonb_to_recordset(positions) as p(generation bigint, seq bigint));
    select attempts, vanished, given_back_ms into tries, lost, back from mailbox
        where key = p_key and generation = g and seq = s;
    select coalesce(max(event_seq), 0) into last_event from step
        where key = p_key and generation = g and seq = s and run_id = '';
    found_steps := steps_after(p_key, g, s, '', 0);
    return jsonb_build_object('manifest', manifest || jsonb_build_object('deadline_ms',
            (manifest->>'deadline_ms')::bigint + back),
        'messages', messages, 'steps', found_steps->'steps', 'more', found_steps->'more',
        'history', history_before(c, g, s, p_history), 'event_seq', last_event,
        'attempts', tries, 'vanished', lost, 'controls', controls(c));
end $$;

create function write_step(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_step jsonb, p_event_seq bigint) returns boolean
language plpgsql set search_path = turn_v1, public as $$
declare run text := coalesce(p_step->>'run_id', ''); n_ int := (p_step->>'n')::int;
begin
    insert into step (key, generation, seq, run_id, n, kind, body, epoch, event_seq)
        values (p_key, p_generation, p_seq, run, n_, p_step->>'kind', p_step->'body', p_epoch,
                p_event_seq)
        on conflict do nothing;
    if found then return true; end if;
    perform 1 from step where key = p_key and generation = p_generation and seq = p_seq
        and run_id = run and n = n_ and kind = p_step->>'kind' and body = p_step->'body';
    if not found then
        perform fail('PH002', 'another step is recorded under this number');
    end if;
    return false;
end $$;

create function record(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_step jsonb, p_event_seq bigint, p_calls jsonb) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation;
begin
    c := held_shared(p_key, p_epoch);
    perform 1 from mailbox where key = p_key and begun_epoch = p_epoch and state = 'waiting'
        and generation = p_generation and seq = p_seq;
    if not found then
        perform fail('PH002', 'this turn is not under way');
    end if;
    if write_step(p_key, p_epoch, p_generation, p_seq, p_step, p_event_seq) then
        -- Progress: whatever stopped earlier attempts, it was not this message alone.
        update mailbox set attempts = 1
            where key = p_key and begun_epoch = p_epoch and state = 'waiting' and attempts > 1;
    end if;
    insert into call (call_id, key, generation, seq, parent_run, request_hash, caller_epoch)
        select call_id, p_key, p_generation, p_seq, coalesce(p_step->>'run_id', ''), request_hash,
               p_epoch
        from jsonb_to_recordset(p_calls) as r(call_id text, request_hash text)
        on conflict do nothing;
    return jsonb_build_object('controls', controls(c));
end $$;

-- Allots the next number and stores an outbound message; the caller holds the row lock.
create function send(p_key text, p_idempotency text, p_generation bigint, p_seq bigint,
    p_body jsonb) returns outbound
language plpgsql set search_path = turn_v1, public as $$
declare n bigint; g bigint; o outbound;
begin
    select generation into g from era;
    update conversation set out_seq = out_seq + 1 where key = p_key returning out_seq into n;
    insert into outbound (key, generation, seq, id, idempotency_key, turn_generation, turn_seq, body)
        values (p_key, g, n, p_key || ':' || g || ':' || n, p_idempotency, p_generation, p_seq,
                p_body || jsonb_build_object('id', p_key || ':' || g || ':' || n, 'seq', n))
        returning * into o;
    return o;
end $$;

create function emit(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_idempotency text, p_message jsonb, p_step jsonb) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation; o outbound; again boolean;
begin
    c := held(p_key, p_epoch);
    select * into o from outbound where key = p_key and idempotency_key = p_idempotency;
    again := found;
    if p_step is not null then
        perform write_step(p_key, p_epoch, p_generation, p_seq, p_step, 0);
    end if;
    if not again then
        o := send(p_key, p_idempotency, p_generation, p_seq, p_message);
    end if;
    return jsonb_build_object('outgoing', outgoing(o), 'again', again, 'controls', controls(c));
end $$;

create function notify(p_key text, p_address text, p_idempotency text, p_message jsonb)
returns jsonb language plpgsql set search_path = turn_v1, public as $$
declare o outbound; again boolean;
begin
    select * into o from outbound where key = p_key and idempotency_key = p_idempotency;
    again := found;
    if not again then
        insert into conversation (key, address) values (p_key, p_address) on conflict do nothing;
        perform 1 from conversation where key = p_key for no key update;
        select * into o from outbound where key = p_key and idempotency_key = p_idempotency;
        again := found;
    end if;
    if not again then
        o := send(p_key, p_idempotency, null, null, p_message);
    end if;
    return jsonb_build_object('outgoing', outgoing(o), 'again', again);
end $$;

create function commit(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_positions jsonb, p_state text, p_reason text, p_outbound jsonb, p_history jsonb,
    p_checked_generation bigint, p_checked_seq bigint, p_ttl float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation; mine int; wanted int := jsonb_array_length(p_positions); w jsonb;
begin
    select * into c from conversation where key = p_key for no key update;
    select count(*) into mine from mailbox m
        join jsonb_to_recordset(p_positions) as p(generation bigint, seq bigint)
            on m.generation = p.generation and m.seq = p.seq
        where m.key = p_key and m.done_epoch = p_epoch;
    if wanted > 0 and mine = wanted then  -- the repeat of a commit whose answer was lost
        w := case when c.epoch = p_epoch and c.owner is not null then waiting(p_key) else '[]' end;
        return jsonb_build_object('again', true, 'freed', w = '[]', 'waiting', w,
            'unpublished', unpublished(p_key), 'controls', controls(c));
    end if;
    if c.epoch is distinct from p_epoch or c.owner is null then
        perform fail('PH001', 'this lease is no longer held');
    end if;
    update mailbox m set state = p_state, reason = p_reason, done_epoch = p_epoch,
            begun_epoch = null, finished_at = clock_timestamp()
        from jsonb_to_recordset(p_positions) as p(generation bigint, seq bigint)
        where m.key = p_key and m.generation = p.generation and m.seq = p.seq
          and m.state = 'waiting';
    get diagnostics mine = row_count;
    if mine <> wanted or wanted = 0 then
        perform fail('PH002', 'not every message of this turn waits');
    end if;
    perform send(p_key, 'turn:' || p_generation || ':' || p_seq || ':' || o.i, p_generation, p_seq,
                 o.body)
        from (select body, i from jsonb_array_elements(p_outbound) with ordinality as x(body, i)
              order by i) o;
    insert into history (organisation, tenant_id, generation, seq, message)
        select c.organisation, c.tenant_id, p_generation, p_seq,
               coalesce(h.entry->'message', s.body->'message')
        from jsonb_array_elements(p_history) with ordinality as h(entry, i)
        left join step s on s.key = p_key and s.generation = p_generation and s.seq = p_seq
            and s.run_id = '' and s.n = (h.entry->>'step')::int
        order by h.i;
    w := waiting(p_key);
    update conversation set
            checked_generation = case when (p_checked_generation, p_checked_seq)
                > (checked_generation, checked_seq) then p_checked_generation
                else checked_generation end,
            checked_seq = case when (p_checked_generation, p_checked_seq)
                > (checked_generation, checked_seq) then p_checked_seq else checked_seq end,
            owner = case when w = '[]' then null else owner end,
            lease_until = case when w = '[]' then '-infinity'
                else clock_timestamp() + make_interval(secs => p_ttl) end
        where key = p_key;
    return jsonb_build_object('again', false, 'freed', w = '[]', 'waiting', w,
        'unpublished', unpublished(p_key), 'controls', controls(c));
end $$;

-- Hands a conversation back: free at once for others, the attempt un-counted (R7).
create function release(p_key text, p_epoch bigint)
returns jsonb language plpgsql set search_path = turn_v1, public as $$
declare c conversation;
begin
    c := held(p_key, p_epoch);
    update mailbox set attempts = greatest(0, attempts - 1), begun_epoch = null
        where key = p_key and state = 'waiting' and begun_epoch = p_epoch;
    update conversation set lease_until = '-infinity', idle_since = clock_timestamp(),
            owner = case when exists (select 1 from mailbox where key = p_key
                                      and state = 'waiting') then owner end
        where key = p_key;
    return '{}';
end $$;

create function control(p_key text, p_address text, p_op text, p_generation bigint, p_seq bigint)
returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation; ended jsonb := '[]'; running boolean; waits int;
begin
    insert into conversation (key, address) values (p_key, p_address) on conflict do nothing;
    select * into c from conversation where key = p_key for no key update;
    running := exists (select 1 from mailbox where key = p_key and state = 'waiting'
                       and begun_epoch is not null and (generation, seq) < (p_generation, p_seq));
    if p_op = 'stop' then
        if (p_generation, p_seq) > (c.stop_generation, c.stop_seq) then
            update conversation set stop_generation = p_generation, stop_seq = p_seq
                where key = p_key;
        end if;
        -- What has begun is ended by its holder, who answers it.
        with s as (update mailbox set state = 'stopped', finished_at = clock_timestamp()
                where key = p_key and state = 'waiting' and begun_epoch is null
                  and (generation, seq) < (p_generation, p_seq)
                  and not exists (select 1 from step where step.key = mailbox.key
                      and step.generation = mailbox.generation and step.seq = mailbox.seq)
                returning source_id)
        select coalesce(jsonb_agg(source_id), '[]') into ended from s;
    elsif p_op = 'new' then
        if (p_generation, p_seq) > (c.new_generation, c.new_seq) then
            update conversation set new_generation = p_generation, new_seq = p_seq
                where key = p_key;
        end if;
    elsif p_op <> 'status' then
        perform fail('PH002', 'unknown command');
    end if;
    select count(*) into waits from mailbox where key = p_key and state = 'waiting';
    return jsonb_build_object('running', running, 'stopped', ended, 'waiting', waits);
end $$;

-- Outbound that nobody published: claimed, oldest first, at most 5 per conversation (R12).
create function relay(p_after float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare claimed jsonb;
begin
    with due as (
        select o.key, o.generation, o.seq,
               row_number() over (partition by o.key order by o.generation, o.seq) as place
        from outbound o where not published and failed is null and relay_until < clock_timestamp()
            and created_at < clock_timestamp() - make_interval(secs => p_after)),
    mine as (
        select o.key, o.generation, o.seq from outbound o join due using (key, generation, seq)
        where due.place <= 5 order by o.created_at limit 50 for update of o skip locked),
    taken as (
        update outbound o set relay_until = clock_timestamp() + make_interval(secs => p_after)
        from mine where o.key = mine.key and o.generation = mine.generation and o.seq = mine.seq
        returning o.*)
    select coalesce(jsonb_agg(outgoing(row(taken.*)::outbound) order by key, generation, seq), '[]')
        into claimed from taken;
    return claimed;
end $$;

create function adopt(p_worker text, p_ttl float8, p_max int) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare adopted jsonb := '[]'; c conversation;
begin
    for c in select * from conversation
            where owner is not null and lease_until < clock_timestamp()
              and (lease_until = '-infinity' or grace_until(p_ttl) <= clock_timestamp())
            order by key limit p_max for no key update skip locked loop
        if exists (select 1 from mailbox where key = c.key and state = 'waiting') then
            adopted := adopted || take(c, p_worker, p_ttl);
        else
            update conversation set owner = null where key = c.key;
        end if;
    end loop;
    return adopted;
end $$;

create function heartbeat(p_worker text, p_leases jsonb, p_calls jsonb, p_published jsonb,
    p_adopt int, p_ttl float8, p_relay_after float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare lost jsonb; lost_calls jsonb; cancels jsonb; told jsonb;
begin
    -- Losing the last renewals in a crash costs nothing: no flush. Adopting does flush.
    if p_adopt = 0 then perform set_config('synchronous_commit', 'off', true); end if;
    update outbound o set published = p.failed is null, failed = p.failed
        from jsonb_to_recordset(p_published)
            as p(key text, generation bigint, seq bigint, failed text)
        where o.key = p.key and o.generation = p.generation and o.seq = p.seq;
    with asked as (select * from jsonb_to_recordset(p_leases) as l(key text, epoch bigint)),
    mine as (select c.key from conversation c join asked using (key, epoch)
             where c.owner = p_worker order by c.key for no key update of c),
    renewed as (update conversation c
                set lease_until = clock_timestamp() + make_interval(secs => p_ttl)
                from mine where c.key = mine.key and c.lease_until > '-infinity'
                returning c.key, c.stop_generation, c.stop_seq, turn_v1.controls(c) as controls)
    select (select coalesce(jsonb_agg(key), '[]') from asked
            where key not in (select key from renewed)),
           (select coalesce(jsonb_object_agg(r.key, r.controls), '{}') from renewed r
            where r.stop_seq > 0 and exists (select 1 from mailbox m where m.key = r.key
                and m.state = 'waiting' and (m.generation, m.seq) <= (r.stop_generation, r.stop_seq)))
        into lost, told;
    with asked as (select * from jsonb_to_recordset(p_calls) as l(call_id text, epoch bigint)),
    mine as (select c.call_id from call c join asked using (call_id, epoch)
             where c.owner = p_worker and c.state = 'running'
             order by c.call_id for no key update of c),
    renewed as (update call c set lease_until = clock_timestamp() + make_interval(secs => p_ttl)
                from mine where c.call_id = mine.call_id returning c.call_id, c.cancel_reason)
    select (select coalesce(jsonb_agg(call_id), '[]') from asked
            where call_id not in (select call_id from renewed)),
           (select coalesce(jsonb_agg(call_id), '[]') from renewed where cancel_reason is not null)
        into lost_calls, cancels;
    return jsonb_build_object('lost', lost, 'lost_calls', lost_calls, 'cancels', cancels,
        'controls', told,
        'adopted', case when p_adopt > 0 then adopt(p_worker, p_ttl, p_adopt) else '[]' end,
        'relay', case when p_adopt > 0 then relay(p_relay_after) else '[]' end,
        'grace_s', greatest(0, extract(epoch from grace_until(p_ttl) - clock_timestamp())));
end $$;

-- Calls: the same rules, keyed by call id (R13-R15).
create function call_held(p_call text, p_epoch bigint) returns call
language plpgsql set search_path = turn_v1, public as $$
declare k call;
begin
    select * into k from call where call_id = p_call for no key update;
    if not found then perform fail('PH002', 'there is no such call'); end if;
    if k.epoch <> p_epoch or k.state <> 'running' then
        perform fail('PH001', 'this call is no longer held');
    end if;
    return k;
end $$;

create function call_open(p_call text, p_hash text, p_worker text, p_anonymous boolean,
    p_ttl float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare k call;
begin
    if p_anonymous then
        insert into call (call_id, request_hash) values (p_call, p_hash) on conflict do nothing;
    end if;
    select * into k from call where call_id = p_call for no key update;
    if not found then perform fail('PH002', 'there is no such call'); end if;
    if k.request_hash <> p_hash then
        perform fail('PH002', 'this call id belongs to another request');
    end if;
    if k.state = 'finished' then
        return jsonb_build_object('state', 'finished', 'result', k.result);
    end if;
    if k.state = 'running' and k.lease_until > '-infinity'
            and greatest(k.lease_until, grace_until(p_ttl)) > clock_timestamp() then
        return jsonb_build_object('state', 'joined', 'epoch', k.epoch);
    end if;
    update call set state = 'running', owner = p_worker, epoch = epoch + 1,
            lease_until = clock_timestamp() + make_interval(secs => p_ttl)
        where call_id = p_call returning * into k;
    return jsonb_build_object('state', 'opened', 'epoch', k.epoch)
        || steps_after(k.key, k.generation, k.seq, p_call, -1);
end $$;

create function call_record(p_call text, p_epoch bigint, p_step jsonb) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare k call;
begin
    k := call_held(p_call, p_epoch);
    perform write_step(k.key, p_epoch, k.generation, k.seq,
        p_step || jsonb_build_object('run_id', p_call), 0);
    return '{}';
end $$;

create function call_finish(p_call text, p_epoch bigint, p_result jsonb) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare k call;
begin
    select * into k from call where call_id = p_call for no key update;
    if k.state = 'finished' and k.epoch = p_epoch then return '{}'; end if;
    perform call_held(p_call, p_epoch);
    update call set state = 'finished', result = p_result, owner = null,
            finished_at = clock_timestamp() where call_id = p_call;
    return '{}';
end $$;

create function call_cancel(p_call text, p_epoch bigint, p_reason text) returns jsonb
language sql set search_path = turn_v1, public as $$
    update call set cancel_reason = coalesce(cancel_reason, p_reason)
        where call_id = p_call and state <> 'finished' and caller_epoch <= p_epoch;
    select '{}'::jsonb
$$;

create function call_release(p_call text, p_epoch bigint) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
begin
    perform call_held(p_call, p_epoch);
    update call set lease_until = '-infinity' where call_id = p_call;
    return '{}';
end $$;

create function recall(p_key text, p_limit int, p_before bigint) returns jsonb
language sql stable set search_path = turn_v1, public as $$
    with page as (
        select h.n, h.message, h.created_at,
               sum(octet_length(h.message::text)) over (order by h.n desc) as size
        from conversation c
        join history h on h.organisation = c.organisation and h.agent_id = 'main'
            and h.tenant_id = c.tenant_id
        where c.key = p_key and (p_before is null or h.n < p_before)
        order by h.n desc limit p_limit + 1),
    kept as (select * from (select *, row_number() over (order by n desc) as place from page) p
             where place <= p_limit and (size <= 524288 or place = 1))
    select jsonb_build_object(
        'messages', coalesce((select jsonb_agg(jsonb_build_object('n', n, 'message', message,
            'time', to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
            order by n) from kept), '[]'),
        'next_before', case when (select count(*) from page) > (select count(*) from kept)
            then (select min(n) from kept) end)
$$;

create function missing(p_key text, p_generation bigint, p_seq bigint) returns jsonb
language sql stable set search_path = turn_v1, public as $$
    select jsonb_build_object('outgoing', (select outgoing(o) from outbound o
        where key = p_key and generation = p_generation and seq = p_seq and failed is null))
$$;
