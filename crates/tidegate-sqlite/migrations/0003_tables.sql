-- The tables of a store, the same as in PostgreSQL. A new store begins with them; the rows of an older one
-- are moved into them.
--
-- Times are microseconds since 1970; codes are those of tidegate-core. Columns that are searched or
-- compared stand by themselves; what is only carried along is packed (tidegate_core::packed): a narrow
-- row is cheaper to insert, to move and to read. Numbers are never given again; the largest ones of rows
-- that were deleted stand in id_high_water.

-- One row. The id tells stores apart. The version of the catalog changes when rows that processes
-- remember are removed. `swept_at` is the beginning of the last sweep (tidegate_core::sweep).
CREATE TABLE store (
    id              INTEGER NOT NULL,
    catalog_version INTEGER NOT NULL DEFAULT 0,
    swept_at        INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The largest numbers that rows had which were deleted, and of runs that no task has begun (run).
CREATE TABLE id_high_water (
    name   TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Plans, each once. Processes remember their numbers: one that no run uses goes when it was not used for
-- long (tidegate_core::sweep).
CREATE TABLE plan (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    hash    INTEGER NOT NULL,
    tasks   INTEGER NOT NULL,
    used_at INTEGER NOT NULL DEFAULT 0,
    body    BLOB NOT NULL
) STRICT;

-- Queues. The version changes with the pauses of the queue, the names of its live tasks and the pending
-- effects on its runs.
CREATE TABLE queue (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL DEFAULT 0,
    used_at INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Tasks that are alike for a claim: a worker that can run one of them can run all. They go like plans.
CREATE TABLE task_group (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    queue    TEXT NOT NULL,
    workflow TEXT NOT NULL,
    task     TEXT NOT NULL,
    weight   INTEGER NOT NULL,
    used_at  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, workflow, task, weight)
) STRICT;

-- Tasks that can still change. The tasks of a run have consecutive numbers, in the order of the plan.
-- The row of the first one is the run as well (run_id, run_number, run, and input), and stays until the
-- run ends. A row that cannot be read is in quarantine, with the reason.
CREATE TABLE task (
    number      INTEGER PRIMARY KEY,
    request     INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    plan        INTEGER NOT NULL,
    task_group  INTEGER NOT NULL,
    queue       INTEGER,
    weight      INTEGER,
    idx         INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    eligibility INTEGER,
    is_plain    INTEGER NOT NULL,
    worker      INTEGER,
    claim_order INTEGER,
    alarm       INTEGER,
    blocked_on  INTEGER,
    quarantine  TEXT,
    lifecycle   BLOB NOT NULL,
    run_id      BLOB,
    run_number  INTEGER,
    run         BLOB,
    input       BLOB
) STRICT;

-- Tasks that have ended for good; a row comes here when nothing about it can change any more. It is the
-- record of the end as well, by the number in `record`; NULL where the record was written earlier, or
-- pruned. `times` has the time of the last attempt by what it was spent on.
CREATE TABLE ended_task (
    number        INTEGER PRIMARY KEY,
    request       INTEGER NOT NULL,
    fence         INTEGER NOT NULL,
    plan          INTEGER NOT NULL,
    task_group    INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    state         INTEGER NOT NULL,
    record        INTEGER,
    record_kind   INTEGER,
    ended_at      INTEGER NOT NULL,
    lifecycle     BLOB NOT NULL,
    ending        BLOB NOT NULL,
    times         BLOB,
    quarantine    TEXT,
    run_id        BLOB,
    run_number    INTEGER,
    run_ended_at  INTEGER,
    run           BLOB,
    -- 1 if records of the run were pruned.
    is_unrecorded INTEGER,
    input         BLOB,
    output        BLOB
) STRICT;

-- Records of everything but ends that the row of the ended task tells.
CREATE TABLE record (
    number   INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    run      INTEGER NOT NULL,
    idx      INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    reason   INTEGER,
    attempt  INTEGER NOT NULL,
    entry    INTEGER NOT NULL,
    worker   INTEGER,
    begun_at INTEGER,
    active   INTEGER NOT NULL,
    error    TEXT
) STRICT;

-- Labels of runs.
CREATE TABLE run_label (
    run   INTEGER NOT NULL,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

-- The rest of an effect on the tasks of a run, from the task `next` on: the run's row has its mark.
CREATE TABLE pending_effect (
    number INTEGER PRIMARY KEY,
    run    INTEGER NOT NULL,
    kind   INTEGER NOT NULL,
    cause  INTEGER,
    next   INTEGER NOT NULL,
    at     INTEGER NOT NULL
) STRICT;

-- Bodies that are still there after their tasks have ended, with the limit keys and units that they hold.
CREATE TABLE ending (
    task   INTEGER NOT NULL,
    fence  INTEGER NOT NULL,
    worker INTEGER NOT NULL,
    limits BLOB NOT NULL,
    since  INTEGER NOT NULL,
    PRIMARY KEY (task, fence)
) STRICT, WITHOUT ROWID;

-- Idempotency keys, for those runs that have one.
CREATE TABLE run_key (
    queue    TEXT NOT NULL,
    workflow TEXT NOT NULL,
    key      TEXT NOT NULL,
    run      INTEGER NOT NULL,
    PRIMARY KEY (queue, workflow, key)
) STRICT, WITHOUT ROWID;

-- Payloads that do not stand in the row of a task. Those of an older store stay where they are.
CREATE TABLE IF NOT EXISTS payload (
    task INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, kind)
) STRICT, WITHOUT ROWID;

-- Runs that are being pruned: tasks from next up to upto are left, with their payloads, records and
-- signals. The first task is gone, and with it the run, for every look-up.
CREATE TABLE pruning (
    run  INTEGER PRIMARY KEY,
    next INTEGER NOT NULL,
    upto INTEGER NOT NULL
) STRICT;

-- Workers, each a process with an engine; its lock file has the number as its name. The boot id tells
-- whether the process id means the same process still; the renewal is that of the lease.
CREATE TABLE worker (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    id         INTEGER NOT NULL,
    name       TEXT NOT NULL,
    pid        INTEGER,
    host       TEXT,
    boot_id    TEXT,
    started_at INTEGER NOT NULL,
    slots      INTEGER NOT NULL,
    renewal    INTEGER NOT NULL DEFAULT 0,
    -- Whether it can do all there is, not only what worker_task has of it.
    knows_all  INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE worker_queue (
    worker INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    PRIMARY KEY (worker, queue)
) STRICT, WITHOUT ROWID;
CREATE TABLE worker_task (
    worker   INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    task     TEXT NOT NULL,
    PRIMARY KEY (worker, workflow, task)
) STRICT, WITHOUT ROWID;

-- Pauses, also those that are over: they tell how long a run could not start. Scope 0 is a run, named
-- by its id as text; 1 a queue; 2 the store, with an empty name.
CREATE TABLE pause (
    scope       INTEGER NOT NULL,
    name        TEXT NOT NULL,
    paused_at   INTEGER NOT NULL,
    unpaused_at INTEGER
) STRICT;

-- Tasks that workers have to look at.
CREATE TABLE notification (
    worker INTEGER NOT NULL,
    task   INTEGER NOT NULL,
    PRIMARY KEY (worker, task)
) STRICT, WITHOUT ROWID;

-- Waits and steps that are stored. `run` is the run whose end or whose signal is waited for.
CREATE TABLE wait (
    task       INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    name       TEXT NOT NULL,
    occurrence INTEGER NOT NULL,
    label      TEXT NOT NULL,
    since      INTEGER NOT NULL,
    due        INTEGER,
    run        INTEGER,
    outcome    INTEGER,
    body       BLOB,
    signal     INTEGER,
    PRIMARY KEY (task, kind, name, occurrence)
) STRICT, WITHOUT ROWID;

-- Signals that were sent to a run, first in, first out for each name.
CREATE TABLE signal (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    id       BLOB NOT NULL,
    run      INTEGER NOT NULL,
    name     TEXT NOT NULL,
    body     BLOB,
    sent_at  INTEGER NOT NULL,
    taken_by INTEGER
) STRICT;

-- Limits by name: units at once, begins in a number of nanoseconds, or both. `most` is the largest
-- number that was ever allowed at once; NULL is without bound. Origin 0: declared; 1: set by an operator.
CREATE TABLE task_limit (
    name     TEXT PRIMARY KEY,
    at_once  INTEGER,
    rate     INTEGER,
    rate_per INTEGER,
    most     INTEGER,
    origin   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- A limit for one key, declared or not: the units that tasks hold of it, those that were begun in the
-- window of its rate, the task that does not fit and how often others have overtaken it, and when time
-- frees some.
CREATE TABLE limit_key (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    name           TEXT NOT NULL,
    key            TEXT NOT NULL,
    in_use         INTEGER NOT NULL DEFAULT 0,
    window_sum     INTEGER NOT NULL DEFAULT 0,
    overtaken_task INTEGER,
    overtakes      INTEGER NOT NULL DEFAULT 0,
    alarm          INTEGER,
    UNIQUE (name, key)
) STRICT;

-- Units that tasks hold.
CREATE TABLE hold (
    task      INTEGER NOT NULL,
    limit_key INTEGER NOT NULL,
    units     INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    PRIMARY KEY (task, limit_key)
) STRICT, WITHOUT ROWID;

-- Begins of late under limits with a rate.
CREATE TABLE rate_event (
    limit_key INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    units     INTEGER NOT NULL,
    PRIMARY KEY (limit_key, at)
) STRICT, WITHOUT ROWID;
