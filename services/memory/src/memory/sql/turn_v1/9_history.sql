-- Reading back what was said: a page of the newest messages before a number, at most 512 kB.
create function recall(p_key text, p_limit int, p_before bigint) returns jsonb
language plpgsql stable set search_path = turn_v1, public as $$
declare c conversation;
begin
    -- Two statements: joined, they would read the whole history of the conversation (measured).
    select * into c from conversation where key = p_key;
    return (
        with page as (
            select n, message, bytes, created_at from history
            where organisation = c.organisation and agent_id = 'main' and tenant_id = c.tenant_id
              and (p_before is null or n < p_before)
            order by n desc limit p_limit + 1),
        kept as (
            select n, message, created_at from (
                select *, row_number() over in_order as place, sum(bytes) over in_order as total
                from page window in_order as (order by n desc)) sized
            where place <= p_limit and total <= 524288)
        select jsonb_build_object(
            'messages', coalesce(jsonb_agg(jsonb_build_object('n', n, 'message', message, 'time',
                to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
                order by n), '[]'),
            'next_before', case when count(*) < (select count(*) from page) then min(n) end)
        from kept);
end $$;
