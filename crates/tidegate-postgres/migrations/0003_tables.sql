-- The tables of a store. They live in a schema of their own, which the connection's search_path names.
--
-- Times are microseconds since 1970; codes are those of tidegate-core. Columns that are searched or
-- compared stand by themselves; what is only carried along is packed (tidegate_core::packed): a narrow
-- row is cheaper to insert, to move and to read.

-- One row. The id tells stores apart in file names. Records are numbered by the transaction that
-- writes them; record_base is added to the number of the transaction, so that numbers still grow when
-- the tables have moved to another server. The version of the catalog changes when rows that processes
-- remember are removed. `swept_at` is the beginning of the last sweep (tidegate_core::sweep).
CREATE TABLE store (
    is_only         bool PRIMARY KEY DEFAULT true CHECK (is_only),
    id              int8 NOT NULL,
    record_base     int8 NOT NULL DEFAULT 0,
    catalog_version int8 NOT NULL DEFAULT 0,
    swept_at        int8 NOT NULL DEFAULT 0
);

-- Blocks of numbers, taken in a transaction of their own. A number that was given is never given again.
CREATE TABLE number_block (
    name text PRIMARY KEY,
    next int8 NOT NULL
);
INSERT INTO number_block (name, next) VALUES ('task', 1);
CREATE SEQUENCE signal_number;
-- Numbers of runs that no task has begun, as people use them. There may be gaps.
CREATE SEQUENCE run_number;

-- Plans, each once. Processes remember their numbers: one that no run uses goes when it was not used for
-- long (tidegate_core::sweep).
CREATE TABLE plan (
    number  int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash    int8 NOT NULL,
    tasks   int4 NOT NULL,
    used_at int8 NOT NULL DEFAULT 0,
    body    bytea NOT NULL
);
CREATE UNIQUE INDEX plan_hash ON plan (hash, md5(body));

-- Queues. The version changes with the pauses of the queue, the names of its live tasks and the pending
-- effects on its runs.
CREATE TABLE queue (
    number  int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text COLLATE "C" NOT NULL UNIQUE,
    version int8 NOT NULL DEFAULT 0,
    used_at int8 NOT NULL DEFAULT 0
);

-- Tasks that are alike for a claim: a worker that can run one of them can run all. They go like plans.
CREATE TABLE task_group (
    number   int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue    text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    task     text COLLATE "C" NOT NULL,
    weight   int8 NOT NULL,
    used_at  int8 NOT NULL DEFAULT 0,
    UNIQUE (queue, workflow, task, weight)
);

-- Tasks that can still change. The tasks of a run have consecutive numbers, in the order of the plan.
-- The row of the first one is the run as well (run_id, run_number, run, and input), and stays until the
-- run ends. A row that cannot be read is in quarantine, with the reason. A row with claimed_at was claimed
-- by a statement that left its lifecycle as it was when the task was ready.
CREATE TABLE task (
    number      int8 PRIMARY KEY,
    request     int8 NOT NULL,
    fence       int8 NOT NULL,
    plan        int4 NOT NULL,
    task_group  int4 NOT NULL,
    queue       int4,
    weight      int8,
    idx         int4 NOT NULL,
    state       int2 NOT NULL,
    eligibility int2,
    is_plain    bool NOT NULL,
    worker      int8,
    claim_order int8,
    alarm       int8,
    blocked_on  int8,
    claimed_at  int8,
    quarantine  text,
    lifecycle   bytea NOT NULL,
    run_id      uuid,
    run_number  int8,
    run         bytea,
    input       bytea
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX task_ready ON task (task_group, eligibility, claim_order, number)
    WHERE claim_order IS NOT NULL AND blocked_on IS NULL;
-- The codes are those of eligibilities that let a task start.
CREATE INDEX task_claim ON task (queue, weight, claim_order, number) WHERE eligibility IN (0, 3);
CREATE INDEX task_blocked ON task (blocked_on, task_group, claim_order, number) WHERE blocked_on IS NOT NULL;
CREATE INDEX task_owned ON task (worker, number) WHERE worker IS NOT NULL;
CREATE INDEX task_alarm ON task (alarm, number) WHERE alarm IS NOT NULL;
CREATE UNIQUE INDEX task_run_id ON task (run_id) WHERE run_id IS NOT NULL;

-- Tasks that have ended for good; a row comes here when nothing about it can change any more. It is the
-- record of the end as well, by the number in `record`; NULL where the record was written earlier, or
-- pruned. `times` has the time of the last attempt by what it was spent on.
CREATE TABLE ended_task (
    number       int8 PRIMARY KEY,
    request      int8 NOT NULL,
    fence        int8 NOT NULL,
    plan         int4 NOT NULL,
    task_group   int4 NOT NULL,
    idx          int4 NOT NULL,
    state        int2 NOT NULL,
    record       int8,
    record_kind  int2,
    ended_at     int8 NOT NULL,
    lifecycle    bytea NOT NULL,
    ending       bytea NOT NULL,
    times        bytea,
    quarantine   text,
    run_id       uuid,
    run_number   int8,
    run_ended_at int8,
    run          bytea,
    -- Whether records of the run were pruned.
    is_unrecorded bool,
    input        bytea,
    output       bytea
);
CREATE UNIQUE INDEX ended_task_run_id ON ended_task (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX ended_task_record ON ended_task (record) WHERE record IS NOT NULL;

-- Records of everything but ends that the row of the ended task tells.
CREATE TABLE record (
    number   int8 PRIMARY KEY,
    at       int8 NOT NULL,
    run      int8 NOT NULL,
    idx      int4 NOT NULL,
    kind     int2 NOT NULL,
    reason   int2,
    attempt  int8 NOT NULL,
    entry    int8 NOT NULL,
    worker   int8,
    begun_at int8,
    active   int8 NOT NULL,
    error    text
);
CREATE INDEX record_run ON record (run, number);

-- Labels of runs.
CREATE TABLE run_label (
    run   int8 NOT NULL,
    name  text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, name)
);
CREATE INDEX run_label_value ON run_label (name, value, run);

-- The rest of an effect on the tasks of a run, from the task `next` on: the run's row has its mark.
CREATE TABLE pending_effect (
    number int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run    int8 NOT NULL,
    kind   int2 NOT NULL,
    cause  int2,
    next   int8 NOT NULL,
    at     int8 NOT NULL
);
CREATE INDEX pending_effect_run ON pending_effect (run);

-- Bodies that are still there after their tasks have ended, with the limit keys and units that they hold.
CREATE TABLE ending (
    task   int8 NOT NULL,
    fence  int8 NOT NULL,
    worker int8 NOT NULL,
    limits bytea NOT NULL,
    since  int8 NOT NULL,
    PRIMARY KEY (task, fence)
);
CREATE INDEX ending_worker ON ending (worker);

-- Idempotency keys, for those runs that have one.
CREATE TABLE run_key (
    queue    text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    run      int8 NOT NULL,
    PRIMARY KEY (queue, workflow, key)
);
CREATE INDEX run_key_run ON run_key (run);

-- Payloads that do not stand in the row of a task.
CREATE TABLE payload (
    task int8 NOT NULL,
    kind int2 NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (task, kind)
);

-- Runs that are being pruned: tasks from next up to upto are left, with their payloads, records and
-- signals. The first task is gone, and with it the run, for every look-up.
CREATE TABLE pruning (
    run  int8 PRIMARY KEY,
    next int8 NOT NULL,
    upto int8 NOT NULL
);

-- Workers. The number is never given again; `id` is random and stands in file names and notes. The boot
-- id tells whether the process id means the same process still; the renewal is that of the lease.
CREATE TABLE worker (
    number     int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         int8 NOT NULL,
    name       text NOT NULL,
    pid        int8,
    host       text,
    boot_id    text,
    started_at int8 NOT NULL,
    slots      int8 NOT NULL,
    renewal    int8 NOT NULL DEFAULT 0,
    queues     text[] NOT NULL,
    -- Workflow and task of each that it knows; NULL if it knows all.
    workflows  text[],
    tasks      text[]
);

-- Pauses, also those that are over: they tell how long a run could not start. Scope 0 is a run, named
-- by its id as text; 1 a queue; 2 the store, with an empty name.
CREATE TABLE pause (
    scope       int2 NOT NULL,
    name        text COLLATE "C" NOT NULL,
    paused_at   int8 NOT NULL,
    unpaused_at int8
);
CREATE INDEX pause_name ON pause (scope, name);
CREATE UNIQUE INDEX pause_open ON pause (scope, name) WHERE unpaused_at IS NULL;

-- Tasks that workers have to look at.
CREATE TABLE notification (
    worker int8 NOT NULL,
    task   int8 NOT NULL,
    PRIMARY KEY (worker, task)
);

-- Waits and steps that are stored. `run` is the run whose end or whose signal is waited for.
CREATE TABLE wait (
    task       int8 NOT NULL,
    kind       int2 NOT NULL,
    name       text COLLATE "C" NOT NULL,
    occurrence int8 NOT NULL,
    label      text NOT NULL,
    since      int8 NOT NULL,
    due        int8,
    run        int8,
    outcome    int2,
    body       bytea,
    signal     int8,
    PRIMARY KEY (task, kind, name, occurrence)
);
CREATE INDEX wait_open ON wait (run, kind, name, since, task)
    WHERE outcome IS NULL AND run IS NOT NULL;

-- Signals that were sent to a run, first in, first out for each name.
CREATE TABLE signal (
    number   int8 PRIMARY KEY,
    id       uuid NOT NULL,
    run      int8 NOT NULL,
    name     text COLLATE "C" NOT NULL,
    body     bytea,
    sent_at  int8 NOT NULL,
    taken_by int8
);
CREATE INDEX signal_untaken ON signal (run, name, number) WHERE taken_by IS NULL;
CREATE INDEX signal_sent ON signal (run, id);

-- Limits by name: units at once, begins in a number of nanoseconds, or both. `most` is the largest
-- number that was ever allowed at once; NULL is without bound. Origin 0: declared; 1: set by an operator.
CREATE TABLE task_limit (
    name     text COLLATE "C" PRIMARY KEY,
    at_once  int8,
    rate     int8,
    rate_per int8,
    most     int8,
    origin   int2 NOT NULL DEFAULT 0
);

-- A limit for one key, declared or not: the units that tasks hold of it, those that were begun in the
-- window of its rate, the task that does not fit and how often others have overtaken it, and when time
-- frees some.
CREATE TABLE limit_key (
    number         int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    in_use         int8 NOT NULL DEFAULT 0,
    window_sum     int8 NOT NULL DEFAULT 0,
    overtaken_task int8,
    overtakes      int8 NOT NULL DEFAULT 0,
    alarm          int8,
    UNIQUE (name, key)
) WITH (fillfactor = 20);
CREATE INDEX limit_alarm ON limit_key (alarm) WHERE alarm IS NOT NULL;

-- Units that tasks hold.
CREATE TABLE hold (
    task      int8 NOT NULL,
    limit_key int8 NOT NULL,
    units     int8 NOT NULL,
    since     int8 NOT NULL,
    PRIMARY KEY (task, limit_key)
);
CREATE INDEX hold_limit ON hold (limit_key);

-- Begins of late under limits with a rate.
CREATE TABLE rate_event (
    limit_key int8 NOT NULL,
    at        int8 NOT NULL,
    units     int8 NOT NULL,
    PRIMARY KEY (limit_key, at)
);

-- Runs that were submitted in a transaction of the caller's own, to be made by a worker.
CREATE TABLE inbox (
    number   int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow text NOT NULL,
    input    bytea,
    key      text,
    queue    text NOT NULL,
    at       int8 NOT NULL
);
