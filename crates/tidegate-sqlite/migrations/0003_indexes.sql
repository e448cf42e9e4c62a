-- The indexes, made when the rows of an older store have been moved.
--
-- Only live tasks are in the first ones, so that they stay as small as the work in flight. They are few,
-- because every insert opens all of them: claims look at eligibilities 0 and 3 of the first, where no
-- limit is in between. A task that is blocked on a limit is found there by it: with eligibility 4 or, to
-- go on after a wait, with none. The third has those that a worker owns and, without a worker, those that
-- wait as rows (state 5).
CREATE INDEX task_ready ON task (eligibility, blocked_on, task_group, claim_order)
    WHERE claim_order IS NOT NULL;
CREATE INDEX task_alarm ON task (alarm) WHERE alarm IS NOT NULL;
CREATE INDEX task_owned ON task (worker) WHERE worker IS NOT NULL OR state = 5;
CREATE UNIQUE INDEX task_run_id ON task (run_id) WHERE run_id IS NOT NULL;
CREATE UNIQUE INDEX ended_task_run_id ON ended_task (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX ended_task_record ON ended_task (record) WHERE record IS NOT NULL;
CREATE INDEX plan_hash ON plan (hash);
CREATE INDEX record_run ON record (run);
CREATE INDEX run_label_value ON run_label (name, value, run);
CREATE INDEX pending_effect_run ON pending_effect (run);
CREATE INDEX ending_worker ON ending (worker);
CREATE INDEX run_key_run ON run_key (run);
CREATE INDEX pause_name ON pause (scope, name);
CREATE UNIQUE INDEX pause_open ON pause (scope, name) WHERE unpaused_at IS NULL;
CREATE INDEX wait_open ON wait (run, kind, name, since, task)
    WHERE outcome IS NULL AND run IS NOT NULL;
CREATE INDEX signal_untaken ON signal (run, name, number) WHERE taken_by IS NULL;
CREATE INDEX signal_sent ON signal (run, id);
CREATE INDEX limit_alarm ON limit_key (alarm) WHERE alarm IS NOT NULL;
CREATE INDEX hold_limit ON hold (limit_key, units);

-- For people: runs as such. A run that no task has begun has a number.
CREATE VIEW run AS
SELECT
    first.run_number AS number,
    lower(hex(first.run_id)) AS id,
    task_group.queue,
    task_group.workflow,
    (SELECT key FROM run_key WHERE run_key.run = first.number) AS idempotency_key,
    datetime(first.run_ended_at / 1000000, 'unixepoch') AS ended_at,
    first.number AS first_task
FROM (
    SELECT number, run_number, run_id, task_group, NULL AS run_ended_at
    FROM task WHERE run_id IS NOT NULL
    UNION ALL
    SELECT number, run_number, run_id, task_group, run_ended_at
    FROM ended_task WHERE run_id IS NOT NULL
) AS first JOIN task_group ON task_group.number = first.task_group;
