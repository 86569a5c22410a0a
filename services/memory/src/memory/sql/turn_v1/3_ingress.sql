-- From the stream into the mailbox, and the commands about it.

-- Stores a stream message under the conversation's lock and says what became of it.
create function store(c conversation, p_generation bigint, p_seq bigint, p_source text,
    p_body jsonb, p_reason text, p_limit int) returns mailbox
language plpgsql set search_path = turn_v1, public as $$
declare m mailbox; s text := 'waiting';
begin
    if octet_length(p_body::text) > 409600 or octet_length(p_source) > 1024 then
        perform fail('PH003', 'the message or its id is too large');
    elsif p_body is null then
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

-- What its sender still has to be told. A message that a command stopped is named in the
-- command's own notice.
create function outcome(m mailbox) returns text language sql immutable as $$
    select case when m.state = 'stopped' and m.reason is not null then 'done' else m.state end
$$;

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
    end if;
    if live is not true then
        c := locked(p_key, p_address);
        m := store(c, p_generation, p_seq, p_source, p_body, p_reason, p_limit);
        live := is_live(c, p_ttl);
        idle := not exists (select 1 from mailbox where key = p_key and state = 'waiting');
        if not live and not idle then
            return jsonb_build_object('state', 'opened', 'message', outcome(m),
                'lease', take(c, p_worker, p_ttl, 262144));
        end if;
    end if;
    return jsonb_build_object('state', case when m.state = 'waiting' then 'busy' else 'done' end,
        'message', outcome(m), 'unpublished', case when m.state = 'waiting' then '[]'
                                                else unpublished(p_key) end);
end $$;

create function admit(p_key text, p_epoch bigint, p_generation bigint, p_seq bigint,
    p_source text, p_body jsonb, p_reason text, p_limit int) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare c conversation; m mailbox;
begin
    c := held(p_key, p_epoch);
    m := store(c, p_generation, p_seq, p_source, p_body, p_reason, p_limit);
    perform note_checked(c, p_generation, p_seq);
    return jsonb_build_object('message', outcome(m), 'waiting', waiting(p_key));
end $$;

-- The holder has looked: every stream message up to here is in the mailbox.
create function note_checked(c conversation, p_generation bigint, p_seq bigint) returns void
language sql set search_path = turn_v1, public as $$
    update conversation set checked_generation = p_generation, checked_seq = p_seq
        where key = c.key
          and (p_generation, p_seq) > (c.checked_generation, c.checked_seq)
$$;

-- Whether a message belongs to a turn that has a manifest: then its holder ends it.
create function is_begun(m mailbox) returns boolean
language sql stable set search_path = turn_v1, public as $$
    -- Not a join, so that what waits comes first: the steps of all turns are many.
    select exists (
        select 1 from mailbox head
        where head.key = m.key and head.state = 'waiting'
          and (select body->'positions' from step s
               where s.key = head.key and s.generation = head.generation and s.seq = head.seq
                 and s.run_id = '' and s.n = 0)
              @> jsonb_build_array(position_json(m.generation, m.seq)))
$$;

-- /stop covers everything before its position; what has begun is ended by its holder. Rows keep
-- the command as their reason, so that its repeat names the same messages.
create function stop_waiting(c conversation, p_generation bigint, p_seq bigint) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare command text := 'stop:' || p_generation || ':' || p_seq;
begin
    update mailbox m set state = 'stopped', reason = command, finished_at = clock_timestamp()
        where key = c.key and state = 'waiting' and (generation, seq) < (p_generation, p_seq)
          and not is_begun(m);
    return (select coalesce(jsonb_agg(source_id order by generation, seq), '[]') from mailbox
            where key = c.key and state = 'stopped' and reason = command);
end $$;

create function control(p_key text, p_address text, p_op text, p_generation bigint, p_seq bigint)
returns jsonb language plpgsql set search_path = turn_v1, public as $$
declare c conversation; ended jsonb := '[]'; running boolean; waits int;
begin
    c := locked(p_key, p_address);
    running := exists (select 1 from mailbox where key = p_key and state = 'waiting'
                       and begun_epoch is not null and (generation, seq) < (p_generation, p_seq));
    if p_op = 'stop' then
        update conversation set stop_generation = p_generation, stop_seq = p_seq
            where key = p_key and (p_generation, p_seq) > (stop_generation, stop_seq);
        ended := stop_waiting(c, p_generation, p_seq);
    elsif p_op = 'new' then
        update conversation set new_generation = p_generation, new_seq = p_seq
            where key = p_key and (p_generation, p_seq) > (new_generation, new_seq);
    elsif p_op <> 'status' then
        perform fail('PH002', 'unknown command');
    end if;
    select count(*) into waits from mailbox where key = p_key and state = 'waiting';
    return jsonb_build_object('running', running, 'stopped', ended, 'waiting', waits,
        'sample', coalesce((select left(body->>'content', 200) from mailbox
                            where key = p_key and body is not null
                            order by generation desc, seq desc limit 1), ''));
end $$;
