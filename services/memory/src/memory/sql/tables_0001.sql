-- Tables of the first version. Reasons and proofs: docs/architecture.md ("A turn, end to end").
-- No foreign keys on hot tables: each insert would lock the conversation row a second time.

-- Raised by a restore: epochs and outbound numbers never repeat (R6).
create table era (
    id boolean primary key default true check (id),
    generation bigint not null default 1
);
insert into era default values;

-- Until then nobody takes over: holders may have been unable to renew (R11).
create table grace (
    id boolean primary key default true check (id),
    until timestamptz not null default '-infinity'
);
insert into grace default values;

-- No index on a column that a renewal changes, so that renewals stay HOT updates (measured).
create table conversation (
    key text primary key,
    tenant_id bigint generated always as identity unique,
    organisation text not null default 'default',
    address text not null default '',
    epoch bigint not null default 0,
    owner text,
    lease_until timestamptz not null default '-infinity',  -- '-infinity': handed back
    idle_since timestamptz,
    -- Every stream message of this conversation up to here is in the mailbox.
    checked_generation bigint not null default 0,
    checked_seq bigint not null default 0,
    out_seq bigint not null default 0,
    stop_generation bigint not null default 0,
    stop_seq bigint not null default 0,
    new_generation bigint not null default 0,
    new_seq bigint not null default 0
) with (fillfactor = 60);
create index conversation_owned on conversation (key) where owner is not null;

create table mailbox (
    key text not null,
    generation bigint not null,
    seq bigint not null,
    source_id text not null,
    body jsonb,
    state text not null default 'waiting'
        check (state in ('waiting', 'done', 'failed', 'refused', 'stopped')),
    reason text,
    attempts smallint not null default 0,
    vanished smallint not null default 0,
    -- Epoch of the holder whose turn is under way; still set at a take-over: it vanished.
    begun_epoch bigint,
    given_back_ms bigint not null default 0,
    done_epoch bigint,
    admitted_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    primary key (key, generation, seq),
    -- This order: no plan may take it for the primary key.
    unique (source_id, key)
) with (fillfactor = 80);
create index mailbox_waiting on mailbox (key, generation, seq) where state = 'waiting';
create index mailbox_stopped on mailbox (key, reason, generation, seq) where state = 'stopped';

create table step (
    key text not null,
    generation bigint not null,
    seq bigint not null,
    run_id text not null default '',  -- '' = the root run of the turn, else a call id
    n int not null,
    kind text not null,
    body jsonb not null,
    epoch bigint not null,
    event_seq bigint not null default 0,
    recorded_at timestamptz not null default clock_timestamp(),
    primary key (key, generation, seq, run_id, n)
);

create table outbound (
    key text not null,
    generation bigint not null,
    seq bigint not null,
    id text not null unique,
    idempotency_key text not null,
    turn_generation bigint,
    turn_seq bigint,
    body jsonb not null,
    published boolean not null default false,
    failed text,
    relay_until timestamptz not null default '-infinity',
    created_at timestamptz not null default clock_timestamp(),
    primary key (key, generation, seq),
    unique (idempotency_key, key)
);
create index outbound_unpublished on outbound (key, generation, seq)
    where not published and failed is null;

create table call (
    call_id text primary key,
    key text not null default '',
    generation bigint not null default 0,
    seq bigint not null default 0,
    parent_run text not null default '',
    request_hash text not null,
    state text not null default 'requested'
        check (state in ('requested', 'running', 'finished')),
    caller_epoch bigint not null default 0,
    epoch bigint not null default 0,
    owner text,
    lease_until timestamptz not null default '-infinity',
    cancel_reason text,
    result jsonb,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz
) with (fillfactor = 60);
create index call_of_turn on call (key, generation, seq);

create table history (
    organisation text not null default 'default',
    agent_id text not null default 'main',
    tenant_id bigint not null,
    n bigint generated always as identity,
    generation bigint not null,
    seq bigint not null,
    message jsonb not null,
    -- Known without reading the message: large ones are stored elsewhere, and most are not needed.
    bytes int not null generated always as (octet_length(message::text)) stored,
    created_at timestamptz not null default clock_timestamp(),
    primary key (organisation, agent_id, tenant_id, n)
);

create table agent_memory_blocks (
    organisation text not null default 'default',
    agent_id text not null default 'main',
    tenant_id bigint not null default 0,
    block_name text not null,
    user_id text not null default '',
    content text not null default '',
    char_limit int not null default 2000,
    version bigint not null default 1,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (organisation, agent_id, tenant_id, block_name, user_id)
);
