-- The end of a turn: state, outbound and history in one transaction.

-- Whether this very commit was done before: its answer was lost.
create function is_committed(p_key text, p_epoch bigint, p_positions jsonb) returns boolean
language sql stable set search_path = turn_v1, public as $$
    -- A join would read the whole mailbox of the conversation: a list's length is not estimated.
    select coalesce(bool_and(p_epoch is not distinct from (
        select done_epoch from mailbox m
        where m.key = p_key and m.generation = p.generation and m.seq = p.seq)), false)
    from jsonb_to_recordset(p_positions) as p(generation bigint, seq bigint)
$$;

-- Ends the messages of a turn; false when this very commit did so before. More than the manifest
-- names may end (steered ones), and less: what is left over was not begun.
create function finish(p_key text, p_epoch bigint, p_positions jsonb, p_state text, p_reason text)
returns boolean language plpgsql set search_path = turn_v1, public as $$
declare ended int;
begin
    update mailbox m set state = p_state, reason = p_reason, done_epoch = p_epoch,
            begun_epoch = null, finished_at = clock_timestamp()
        from jsonb_to_recordset(p_positions) as p(generation bigint, seq bigint)
        where m.key = p_key and m.generation = p.generation and m.seq = p.seq
          and m.state = 'waiting';
    get diagnostics ended = row_count;
    if ended = 0 and is_committed(p_key, p_epoch, p_positions) then return false; end if;
    if ended <> jsonb_array_length(p_positions) or ended = 0 then
        perform fail('PH002', 'not every message of this turn waits');
    end if;
    perform unbegin(p_key, p_epoch);
    return true;
end $$;

-- Appends the turn's messages: written out, or named as steps of its root run.
create function append_history(c conversation, p_generation bigint, p_seq bigint, p_history jsonb)
returns void language plpgsql set search_path = turn_v1, public as $$
declare messages jsonb;
begin
    select jsonb_agg(coalesce(h.entry->'message', s.body->'message') order by h.i) into messages
        from jsonb_array_elements(p_history) with ordinality as h(entry, i)
        left join step s on s.key = c.key and s.generation = p_generation and s.seq = p_seq
            and s.run_id = '' and s.n = (h.entry->>'step')::int;
    if exists (select 1 from jsonb_array_elements(messages) m
               where jsonb_typeof(m) <> 'object' or is_too_large(m)) then
        perform fail('PH002', 'a history entry is no message, no step with one, or over 192 kB');
    end if;
    insert into history (organisation, tenant_id, generation, seq, message)
        select c.organisation, c.tenant_id, p_generation, p_seq, m.message
        from jsonb_array_elements(messages) with ordinality as m(message, i) order by m.i;
end $$;

create function commit(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_positions jsonb, p_state text, p_reason text, p_outbound jsonb, p_history jsonb,
    p_checked_generation bigint, p_checked_seq bigint, p_ttl float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation; again boolean; w jsonb;
begin
    select * into c from conversation where key = p_key for no key update;
    if is_held(c, p_epoch) then
        again := not finish(p_key, p_epoch, p_positions, p_state, p_reason);
    elsif is_committed(p_key, p_epoch, p_positions) then
        again := true;
    else
        perform fail('PH001', 'this lease is no longer held');
    end if;
    if not again then
        perform send(p_key, 'turn:' || p_generation || ':' || p_seq || ':' || o.i, p_generation,
                     p_seq, o.body)
            from (select body, i from jsonb_array_elements(p_outbound) with ordinality as x(body, i)
                  order by i) o;
        perform append_history(c, p_generation, p_seq, p_history);
        perform note_checked(c, p_checked_generation, p_checked_seq);
    end if;
    w := case when is_held(c, p_epoch) then waiting(p_key) else '[]' end;
    if not again then
        update conversation set owner = case when w = '[]' then null else owner end,
                lease_until = case when w = '[]' then '-infinity'
                    else clock_timestamp() + make_interval(secs => p_ttl) end
            where key = p_key;
    end if;
    return jsonb_build_object('again', again, 'freed', w = '[]', 'waiting', w,
        'unpublished', unpublished(p_key), 'controls', controls(c));
end $$;
