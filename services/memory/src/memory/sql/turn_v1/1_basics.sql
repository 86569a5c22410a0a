-- The turn API, version 1: all files of this folder, in order of their names. Rules:
-- * One function per call, READ COMMITTED. The conversation row is the only lock that anything
--   waits for, and it is taken first, so that each later statement sees what earlier holders
--   committed. Of several conversations: in the order of their keys, or skipping locked ones.
-- * The clock is read after the lock; only this server's clock counts.
-- * Refusals are exceptions, so that nothing is half-written: PH001 fenced, PH002 bad request,
--   PH003 bad message.
-- * Every call may be repeated blindly.
-- * A reply fits into the 1 MB of a NATS message, whatever is stored (see `is_too_large`).
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

-- Steps, outbound and history messages have 192 kB at most (as jsonb prints them), so that
-- the largest reply, of `begin`, is 400 kB (one inbound message) + 256 kB (steps) + 192 kB
-- (history). Workers put what is over 128 kB elsewhere; the difference is for notation.
create function is_too_large(p_body jsonb) returns boolean language sql immutable as $$
    select octet_length(p_body::text) > 196608
$$;

-- Who waits, oldest first; bodies come with `begin`.
create function waiting(p_key text) returns jsonb
language sql stable set search_path = turn_v1, public as $$
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

-- Oldest first, as many as fit; the relay brings the rest.
create function unpublished(p_key text, p_bytes int) returns jsonb
language sql stable set search_path = turn_v1, public as $$
    select coalesce(jsonb_agg(outgoing(u.o) order by (u.o).generation, (u.o).seq), '[]')
    from (select o, sum(octet_length(o.body::text)) over (order by o.generation, o.seq) as total
          from outbound o where key = p_key and not published and failed is null) u
    where u.total <= p_bytes
$$;

create function unpublished(p_key text) returns jsonb
language sql stable set search_path = turn_v1, public as $$
    select unpublished(p_key, 262144)
$$;

-- Commands that the holder compares with its turn.
create function controls(c conversation) returns jsonb language sql immutable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'stop_upto', case when c.stop_seq > 0
            then turn_v1.position_json(c.stop_generation, c.stop_seq) end,
        'new_at', case when c.new_seq > 0
            then turn_v1.position_json(c.new_generation, c.new_seq) end))
$$;
