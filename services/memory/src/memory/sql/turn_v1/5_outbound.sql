-- Messages to the conversation: numbered under its lock, published by workers.

-- Allots the next number and stores an outbound message; the caller holds the row lock.
create function send(p_key text, p_idempotency text, p_generation bigint, p_seq bigint,
    p_body jsonb) returns outbound
language plpgsql set search_path = turn_v1, public as $$
declare n bigint; g bigint; o outbound;
begin
    if is_too_large(p_body) or octet_length(p_idempotency) > 1024 then
        perform fail('PH002', 'an outbound message may have 192 kB, its key 1 kB at most');
    end if;
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
    if is_under_way(p_key, p_epoch, p_generation, p_seq) then
        if p_step is not null then
            perform turn_step(p_key, p_epoch, p_generation, p_seq, p_step, 0);
        end if;
    elsif not again then
        perform fail('PH002', 'this turn is not under way');
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
    perform locked(p_key, p_address);
    select * into o from outbound where key = p_key and idempotency_key = p_idempotency;
    again := found;
    if not again then
        o := send(p_key, p_idempotency, null, null, p_message);
    end if;
    return jsonb_build_object('outgoing', outgoing(o), 'again', again);
end $$;

-- What workers have published, or never can. The first report counts; rows are locked in order,
-- since two workers may report the same ones.
create function note_published(p_published jsonb) returns void
language sql set search_path = turn_v1, public as $$
    with told as (select * from jsonb_to_recordset(p_published)
                  as p(key text, generation bigint, seq bigint, failed text)),
    mine as (select o.key, o.generation, o.seq, told.failed
             from outbound o join told using (key, generation, seq)
             where not o.published and o.failed is null
             order by o.key, o.generation, o.seq for no key update of o)
    update outbound o set published = mine.failed is null, failed = mine.failed
        from mine where o.key = mine.key and o.generation = mine.generation and o.seq = mine.seq
$$;

-- Outbound that nobody published: claimed, oldest first, at most 5 per conversation and 256 kB.
-- What other calls lock is skipped; the conditions stand on the locked rows too, since one may
-- have been claimed between our look and our lock.
create function relay(p_after float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare claimed jsonb;
begin
    with pending as (
        select key, generation, seq, relay_until, created_at,
               row_number() over (partition by key order by generation, seq) as place
        from outbound where not published and failed is null),
    due as (
        select key, generation, seq, created_at from pending
        where place <= 5 and relay_until < clock_timestamp()
          and created_at < clock_timestamp() - make_interval(secs => p_after)
        order by created_at, key, generation, seq limit 50),
    sized as (
        select key, generation, seq, sum(octet_length(o.body::text))
                   over (order by due.created_at, key, generation, seq) as total
        from due join outbound o using (key, generation, seq)),
    mine as (
        select o.key, o.generation, o.seq
        from outbound o join sized using (key, generation, seq)
        where sized.total <= 262144 and not o.published and o.failed is null
          and o.relay_until < clock_timestamp()
        for no key update of o skip locked),
    taken as (
        update outbound o set relay_until = clock_timestamp() + make_interval(secs => p_after)
        from mine where o.key = mine.key and o.generation = mine.generation and o.seq = mine.seq
        returning o.*)
    select coalesce(jsonb_agg(outgoing(row(taken.*)::outbound) order by key, generation, seq), '[]')
        into claimed from taken;
    return claimed;
end $$;

-- For the gateway that misses a number (R17); none: it is to be skipped.
create function missing(p_key text, p_generation bigint, p_seq bigint) returns jsonb
language sql stable set search_path = turn_v1, public as $$
    select jsonb_build_object('outgoing', (select outgoing(o) from outbound o
        where key = p_key and generation = p_generation and seq = p_seq and failed is null))
$$;
