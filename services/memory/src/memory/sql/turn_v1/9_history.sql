-- Reading back what was said: a page of the newest messages before a number, at most 512 kB.
create function recall(p_key text, p_limit int, p_before bigint) returns jsonb
language plpgsql stable set search_path = turn_v1, public as $$
declare c conversation; page history[]; kept jsonb; last bigint; count_ int;
begin
    -- Two statements: joined, they would read the whole history of the conversation (measured).
    select * into c from conversation where key = p_key;
    page := array(select h from history h
        where organisation = c.organisation and agent_id = 'main' and tenant_id = c.tenant_id
          and (p_before is null or n < p_before)
        order by n desc limit p_limit + 1);
    select jsonb_agg(jsonb_build_object('n', n, 'message', message,
               'time', to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
               order by n), min(n), count(*)
        into kept, last, count_
        from (select *, row_number() over in_order as place,
                     sum(octet_length(message::text)) over in_order as total
              from unnest(page) window in_order as (order by n desc)) sized
        where place <= p_limit and total <= 524288;
    return jsonb_build_object('messages', coalesce(kept, '[]'),
        'next_before', case when cardinality(page) > count_ then last end);
end $$;
