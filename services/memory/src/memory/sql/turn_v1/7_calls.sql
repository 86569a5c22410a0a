-- Sub-agent calls: the same rules as turns, keyed by call id (R13-R15).

-- The newest epoch in which somebody may have called: of the parent's run, a turn or a call.
create function newest_caller(k call) returns bigint
language sql stable set search_path = turn_v1, public as $$
    select greatest(k.caller_epoch, case when k.parent_run = ''
        then (select epoch from conversation where key = k.key)
        else (select epoch from call where call_id = k.parent_run) end)
$$;

create function call_held(p_call text, p_epoch bigint) returns call
language plpgsql set search_path = turn_v1, public as $$
declare k call;
begin
    select * into k from call where call_id = p_call for no key update;
    if not found then perform fail('PH002', 'there is no such call'); end if;
    if k.epoch <> p_epoch or k.state <> 'running' or k.lease_until = '-infinity' then
        perform fail('PH001', 'this call is no longer held');
    end if;
    return k;
end $$;

create function call_open(p_call text, p_hash text, p_worker text, p_anonymous boolean,
    p_ttl float8) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare k call; live boolean;
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
    update call set caller_epoch = newest_caller(k)
        where call_id = p_call and caller_epoch < newest_caller(k);
    live := k.state = 'running' and k.lease_until > '-infinity'
        and greatest(k.lease_until, grace_until(p_ttl)) > clock_timestamp();
    if live then
        return jsonb_build_object('state', 'joined', 'epoch', k.epoch);
    end if;
    update call set state = 'running', owner = p_worker, epoch = epoch + 1,
            lease_until = clock_timestamp() + make_interval(secs => p_ttl)
        where call_id = p_call returning * into k;
    return jsonb_build_object('state', 'opened', 'epoch', k.epoch)
        || steps_after(k.key, k.generation, k.seq, p_call, -1);
end $$;

create function call_record(p_call text, p_epoch bigint, p_step jsonb, p_calls jsonb) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare k call;
begin
    k := call_held(p_call, p_epoch);
    perform write_step(k.key, p_epoch, k.generation, k.seq, p_call, p_step, 0);
    perform request_calls(k.key, p_epoch, k.generation, k.seq, p_call, p_calls);
    return '{}';
end $$;

create function call_finish(p_call text, p_epoch bigint, p_result jsonb) returns jsonb
language plpgsql set search_path = turn_v1, public as $$
declare k call;
begin
    select * into k from call where call_id = p_call for no key update;
    if k.state = 'finished' and k.epoch = p_epoch then return '{}'; end if;  -- a repeat
    perform call_held(p_call, p_epoch);
    if is_too_large(p_result) then
        perform fail('PH002', 'a result may have 192 kB at most');
    end if;
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
declare k call;
begin
    select * into k from call where call_id = p_call for no key update;
    if k.state = 'running' and k.epoch = p_epoch and k.lease_until = '-infinity' then
        return '{}';  -- a repeat
    end if;
    perform call_held(p_call, p_epoch);
    update call set lease_until = '-infinity' where call_id = p_call;
    return '{}';
end $$;
