-- Reading back what was said: a page of the newest messages before a number, at most 512 kB.
create function recall(p_key text, p_limit int, p_before bigint) returns jsonb
language sql stable set search_path = turn_v1, public as $$
    with page as (
        select h.n, h.message, h.created_at
        from conversation c
        join history h on h.organisation = c.organisation and h.agent_id = 'main'
            and h.tenant_id = c.tenant_id
        where c.key = p_key and (p_before is null or h.n < p_before)
        order by h.n desc limit p_limit + 1),
    kept as (
        select n, message, created_at from (
            select *, row_number() over (order by n desc) as place,
                   sum(octet_length(message::text)) over (order by n desc) as total
            from page) sized
        where place <= p_limit and total <= 524288)
    select jsonb_build_object(
        'messages', coalesce((select jsonb_agg(jsonb_build_object('n', n, 'message', message,
            'time', to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
            order by n) from kept), '[]'),
        'next_before', case when (select count(*) from page) > (select count(*) from kept)
            then (select min(n) from kept) end)
$$;
