-- A turn under its holder: begin, steps.

-- Messages of a list of positions that still wait, in order: at most 256 kB, at least one.
create function turn_messages(p_key text, p_positions jsonb) returns setof mailbox
language sql stable set search_path = turn_v1, public as $$
    select (w.m).* from (
        select m, row_number() over in_order as place,
               sum(octet_length(m.body::text)) over in_order as total
        from mailbox m
        where m.key = p_key and m.state = 'waiting' and (m.generation, m.seq) in (
            select generation, seq
            from jsonb_to_recordset(p_positions) as p(generation bigint, seq bigint))
        window in_order as (order by m.generation, m.seq)) w
    where w.total <= 262144 or w.place = 1
    order by (w.m).generation, (w.m).seq
$$;

-- Steps of a run after a number, at most 256 kB.
create function steps_after(p_key text, p_generation bigint, p_seq bigint, p_run text, p_after int)
returns jsonb language sql stable set search_path = turn_v1, public as $$
    with sized as (
        select n, kind, body, sum(octet_length(body::text)) over (order by n) as total
        from step where key = p_key and generation = p_generation and seq = p_seq
            and run_id = p_run and n > p_after)
    select jsonb_build_object(
        'steps', coalesce(jsonb_agg(jsonb_build_object('run_id', p_run, 'n', n, 'kind', kind,
            'body', body) order by n) filter (where total <= 262144), '[]'),
        'more', coalesce(bool_or(total > 262144), false))
    from sized
$$;

-- The same for `memory.turn.read`; a call knows the turn it belongs to.
create function read(p_key text, p_generation bigint, p_seq bigint, p_run text, p_after int)
returns jsonb language sql stable set search_path = turn_v1, public as $$
    select steps_after(coalesce(k.key, p_key), coalesce(k.generation, p_generation),
                       coalesce(k.seq, p_seq), p_run, p_after)
    from (values (p_run)) as run(id) left join call k on k.call_id = run.id and run.id <> ''
$$;

-- Newest messages of a conversation before a turn, in time order, at most 192 kB. The limit comes
-- before the border of /new, so that the cost does not grow with what lies behind it.
create function history_before(c conversation, p_generation bigint, p_seq bigint, p_limit int)
returns jsonb language sql stable set search_path = turn_v1, public as $$
    select coalesce(jsonb_agg(message order by n), '[]') from (
        select n, message, sum(bytes) over (order by n desc) as total
        from (select n, generation, seq, message, bytes from history
              where organisation = c.organisation and agent_id = 'main' and tenant_id = c.tenant_id
              order by n desc limit p_limit) newest
        where (p_generation, p_seq) <= (c.new_generation, c.new_seq)
           or (generation, seq) > (c.new_generation, c.new_seq)) sized
    where total <= 196608
$$;

-- The manifest of the turn that a head message starts; an earlier one wins (R8).
create function manifest_of(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_manifest jsonb) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare found_manifest jsonb; positions jsonb;
begin
    select body into found_manifest from step
        where key = p_key and generation = p_generation and seq = p_seq and run_id = '' and n = 0;
    if found then return found_manifest; end if;
    select jsonb_agg(position_json(generation, seq) order by generation, seq) into positions
        from turn_messages(p_key, p_manifest->'positions');
    p_manifest := p_manifest || jsonb_build_object('positions', positions);
    if octet_length(p_manifest::text) > 65536 then
        perform fail('PH002', 'the manifest is too large');
    end if;
    insert into step (key, generation, seq, n, kind, body, epoch)
        values (p_key, p_generation, p_seq, 0, 'manifest', p_manifest, p_epoch);
    return p_manifest;
end $$;

create function begin(p_key text, p_epoch bigint, p_manifest jsonb, p_history int) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare
    c conversation; head mailbox; manifest jsonb; messages jsonb; steps jsonb; last_event bigint;
begin
    c := held(p_key, p_epoch);
    select * into head from mailbox where key = p_key and state = 'waiting'
        order by generation, seq limit 1;
    if position_json(head.generation, head.seq) is distinct from p_manifest->'positions'->0 then
        perform fail('PH002', 'the head of this turn is not the first message that waits');
    end if;
    manifest := manifest_of(p_key, p_epoch, head.generation, head.seq, p_manifest);
    -- The same holder asking again is not another attempt.
    update mailbox set attempts = attempts + (begun_epoch is distinct from p_epoch)::int,
            begun_epoch = p_epoch
        where key = p_key and state = 'waiting' and (generation, seq) in (
            select generation, seq from jsonb_to_recordset(manifest->'positions')
                as p(generation bigint, seq bigint));
    select jsonb_agg(jsonb_build_object('generation', generation, 'seq', seq,
            'source_id', source_id, 'attempts', attempts, 'vanished', vanished, 'body', body)
            order by generation, seq) into messages
        from turn_messages(p_key, manifest->'positions');
    select coalesce(max(event_seq), 0) into last_event from step
        where key = p_key and generation = head.generation and seq = head.seq and run_id = '';
    steps := steps_after(p_key, head.generation, head.seq, '', 0);
    return steps || jsonb_build_object('manifest', manifest || jsonb_build_object('deadline_ms',
            (manifest->>'deadline_ms')::bigint + head.given_back_ms),
        'messages', messages, 'event_seq', last_event,
        'history', history_before(c, head.generation, head.seq, p_history),
        'attempts', messages->0->'attempts', 'vanished', head.vanished, 'controls', controls(c));
end $$;

create function is_under_way(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint)
returns boolean language sql stable set search_path = turn_v1, public as $$
    select exists (select 1 from mailbox where key = p_key and begun_epoch = p_epoch
                   and state = 'waiting' and generation = p_generation and seq = p_seq)
$$;

-- Stores a step; false for the repeat of one that is there.
create function write_step(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_run text, p_step jsonb, p_event_seq bigint) returns boolean
language plpgsql set search_path = turn_v1, public as $$
begin
    if is_too_large(p_step->'body') then
        perform fail('PH002', 'a step may have 192 kB at most');
    end if;
    insert into step (key, generation, seq, run_id, n, kind, body, epoch, event_seq)
        values (p_key, p_generation, p_seq, p_run, (p_step->>'n')::int, p_step->>'kind',
                p_step->'body', p_epoch, p_event_seq)
        on conflict do nothing;
    if found then return true; end if;
    perform 1 from step where key = p_key and generation = p_generation and seq = p_seq
        and run_id = p_run and n = (p_step->>'n')::int and kind = p_step->>'kind'
        and body = p_step->'body';
    if not found then
        perform fail('PH002', 'another step is recorded under this number');
    end if;
    return false;
end $$;

-- A step of a turn. A new one is progress: whatever stopped earlier attempts, it was not this
-- message alone (workers that vanished are counted apart, for ever).
create function turn_step(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_step jsonb, p_event_seq bigint) returns void
language plpgsql set search_path = turn_v1, public as $$
begin
    if write_step(p_key, p_epoch, p_generation, p_seq, coalesce(p_step->>'run_id', ''), p_step,
                  p_event_seq) then
        update mailbox set attempts = 1
            where key = p_key and begun_epoch = p_epoch and state = 'waiting' and attempts > 1;
    end if;
end $$;

-- Sub-agent calls that a step asks for, in the same transaction (R13).
create function request_calls(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_run text, p_calls jsonb) returns void
language sql set search_path = turn_v1, public as $$
    insert into call (call_id, key, generation, seq, parent_run, request_hash, caller_epoch)
        select call_id, p_key, p_generation, p_seq, p_run, request_hash, p_epoch
        from jsonb_to_recordset(p_calls) as r(call_id text, request_hash text)
        on conflict do nothing
$$;

create function record(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_step jsonb, p_event_seq bigint, p_calls jsonb) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation;
begin
    c := held(p_key, p_epoch);
    if not is_under_way(p_key, p_epoch, p_generation, p_seq) then
        perform fail('PH002', 'this turn is not under way');
    end if;
    perform turn_step(p_key, p_epoch, p_generation, p_seq, p_step, p_event_seq);
    perform request_calls(p_key, p_epoch, p_generation, p_seq, coalesce(p_step->>'run_id', ''),
                          p_calls);
    return jsonb_build_object('controls', controls(c));
end $$;
