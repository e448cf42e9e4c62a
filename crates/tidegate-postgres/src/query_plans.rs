//! The indexes by which statements find their rows, on empty, full and just analysed tables.
//!
//! Statements are prepared once for a connection and planned without their values, as on every connection
//! of the pool.

mod postgres {
    use crate::config::PostgresConfig;
    use crate::open::open_server;
    use crate::{
        apply, claim, guess, items, limits, others, pauses, records, rows, sweep, views, waits,
    };
    use deadpool_postgres::Object;
    use tidegate_testkit::PostgresSchema;
    use tokio_postgres::SimpleQueryMessage;

    /// A statement by its name, and a part of its plan, in all states of the tables.
    type WantedPlan = (&'static str, &'static str, &'static str);

    /// Rows of every table that grows, about as many as a busy store has alive.
    const FILL: &str = "INSERT INTO task (number, request, fence, plan, task_group, idx, state, \
         eligibility, is_plain, worker, claim_order, alarm, blocked_on, lifecycle, run_id, run) \
         SELECT n, 1, 1, 1, n % 50, 0, CASE n % 4 WHEN 0 THEN 1 ELSE 3 END, \
         CASE n % 4 WHEN 0 THEN 0 END, false, CASE n % 4 WHEN 0 THEN NULL ELSE n % 3 END, \
         CASE n % 4 WHEN 0 THEN n END, CASE n % 8 WHEN 1 THEN n END, \
         CASE n % 16 WHEN 0 THEN 1 + n % 8 END, '\\x01', \
         lpad(to_hex(n), 32, '0')::uuid, '\\x01' FROM generate_series(1, 10000) AS n; \
         INSERT INTO ended_task (number, request, fence, plan, task_group, idx, state, record, \
         record_kind, ended_at, lifecycle, ending, run_id, run_ended_at, run) \
         SELECT n, 1, 1, 1, n % 50, 0, 6, n, 0, n, '\\x01', '\\x01', \
         lpad(to_hex(n), 32, '0')::uuid, n, '\\x01' FROM generate_series(10001, 40000) AS n; \
         INSERT INTO record (number, at, run, idx, kind, attempt, entry, active) \
         SELECT n, n, n % 10000, 0, 5, 1, 1, 0 FROM generate_series(1, 10000) AS n; \
         INSERT INTO run_key (queue, workflow, key, run) \
         SELECT 'q', 'w', n::text, n FROM generate_series(1, 10000) AS n; \
         INSERT INTO payload (task, kind, body) \
         SELECT n, 3, '\\x01' FROM generate_series(1, 10000) AS n; \
         INSERT INTO wait (task, kind, name, occurrence, label, since, run) \
         SELECT n, 1, 'x', 0, '', n, n % 100 FROM generate_series(1, 10000) AS n; \
         INSERT INTO signal (number, id, run, name, sent_at) \
         SELECT n, lpad(to_hex(n), 32, '0')::uuid, n % 100, 'x', n \
         FROM generate_series(1, 10000) AS n; \
         INSERT INTO limit_key (name, key) SELECT 'l', n::text FROM generate_series(1, 1000) AS n; \
         INSERT INTO hold (task, limit_key, units, since) \
         SELECT n, 1 + n % 1000, 1, n FROM generate_series(1, 10000) AS n; \
         INSERT INTO rate_event (limit_key, at, units) \
         SELECT 1 + n % 1000, n, 1 FROM generate_series(1, 10000) AS n; \
         INSERT INTO notification (worker, task) \
         SELECT n % 3, n FROM generate_series(1, 1000) AS n;";

    /// Opens a store of its own and runs a check in each state of its tables.
    fn check_states(check: impl AsyncFn(&Object, &str)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be built").block_on(async {
            let schema = PostgresSchema::new();
            let config = PostgresConfig::parse_url(&schema.store_url()).expect("it is a URL");
            let server = open_server(config).await.expect("the store can be opened");
            // The server analyses one table after the other, at times of its own.
            for (state, change) in [
                ("empty", ""),
                ("full", FILL),
                ("full, some analysed", "ANALYZE task, payload, wait"),
                ("full, more analysed", "ANALYZE plan, ended_task, limit_key"),
                ("analysed", "ANALYZE"),
            ] {
                // Plans of a connection are kept.
                let client = server.take_connection().await.expect("a connection is free");
                client.batch_execute(change).await.expect("the tables can be changed");
                check(&client, state).await;
                drop(Object::take(client));
            }
        });
    }

    /// The plan of a statement without its values.
    async fn explain_statement(client: &Object, sql: &str) -> String {
        let statement =
            client.prepare(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let values = vec!["NULL"; statement.params().len()].join(", ");
        let values = if values.is_empty() { values } else { format!("({values})") };
        let explain = format!(
            "PREPARE explained AS {sql}; EXPLAIN (COSTS OFF) EXECUTE explained{values}; \
             DEALLOCATE explained"
        );
        let answers = client.simple_query(&explain).await.expect("a statement can be explained");
        let lines = answers.iter().filter_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        lines.map(str::trim_start).collect::<Vec<_>>().join("; ")
    }

    fn check_plans(wanted: &'static [WantedPlan]) {
        check_states(async |client, state| {
            for (name, sql, part) in wanted {
                let plan = explain_statement(client, sql).await;
                assert!(plan.contains(part), "{name}, tables {state}: no {part} in {plan}");
            }
        });
    }

    #[test]
    fn writes_find_their_rows_by_an_index_in_empty_and_in_full_tables() {
        check_states(async |client, state| {
            for (name, sql) in apply::STATEMENTS.iter().copied().flatten() {
                let plan = explain_statement(client, sql).await;
                for scan in ["Seq Scan", "Hash Join", "Merge Join", "Sort Key: given"] {
                    assert!(!plan.contains(scan), "{name}, tables {state}: {plan}");
                }
            }
        });
    }

    /// A scan of a whole table or index in a plan, but for tables that stay small.
    fn find_full_scan(plan: &str) -> Option<&str> {
        const SMALL: [&str; 5] =
            ["on task_group", "on pause", "on worker", "on task_limit", "on pending_effect"];
        let lines: Vec<&str> = [""].into_iter().chain(plan.split("; ")).chain([""]).collect();
        let is_full = |around: &&[&str]| {
            let (before, node, detail) = (around[0], around[1], around[2]);
            let is_index_scan = node.contains("Index Scan") || node.contains("Index Only Scan");
            // Under a limit the scan ends with the first row.
            let is_bounded = detail.starts_with("Index Cond") || before.ends_with("Limit");
            node.contains("Seq Scan") || (is_index_scan && !is_bounded)
        };
        let mut full = lines.windows(3).filter(is_full).map(|around| around[1]);
        full.find(|node| !SMALL.iter().any(|small| node.contains(small)))
    }

    #[test]
    fn rows_for_decisions_are_found_by_an_index_in_empty_and_in_full_tables() {
        let statements = [
            rows::STATEMENTS,
            limits::STATEMENTS,
            waits::STATEMENTS,
            items::STATEMENTS,
            others::STATEMENTS,
            pauses::STATEMENTS,
            guess::STATEMENTS,
            claim::STATEMENTS,
            sweep::STATEMENTS,
        ];
        check_states(async |client, state| {
            for (name, sql) in statements.iter().copied().flatten() {
                let plan = explain_statement(client, sql).await;
                let scan = find_full_scan(&plan);
                assert_eq!(scan, None, "{name}, tables {state}: {plan}");
            }
        });
    }

    #[test]
    fn rows_of_tasks_are_written_by_number() {
        let find = |name: &str| {
            let statements = apply::STATEMENTS.iter().copied().flatten();
            statements
                .copied()
                .find(|(known, _)| *known == name)
                .expect("there is such a statement")
                .1
        };
        check_states(async |client, state| {
            for (name, part) in [
                (
                    "UPDATE_TASKS",
                    "Index Scan using task_pkey on task t; Index Cond: (number = given.number)",
                ),
                (
                    "MOVE_ENDED",
                    "Index Scan using task_pkey on task t; Index Cond: (number = given.number)",
                ),
                ("SETTLE_ENDED", "Index Scan using ended_task_pkey on ended_task t_1"),
                ("CHANGE_HOLDS", "Index Scan using hold_pkey on hold h"),
                ("SET_LIMIT_ROWS", "Index Scan using limit_key_pkey on limit_key k"),
                ("DELETE_WAITS", "Index Scan using wait_pkey on wait w"),
            ] {
                let plan = explain_statement(client, find(name)).await;
                assert!(plan.contains(part), "{name}, tables {state}: no {part} in {plan}");
            }
        });
    }

    #[test]
    fn claim_by_order_goes_along_one_index_and_changes_rows_by_their_places() {
        check_states(async |client, state| {
            let plan = explain_statement(client, claim::CLAIM).await;
            for part in [
                "Index Scan using task_claim on task t; \
                 Index Cond: ((queue = $1) AND (weight = $12) AND (ROW(claim_order, number) >= ",
                "using task_claim on task t_1; \
                 Index Cond: ((queue = $1) AND (weight = other.weight))",
                "Tid Scan on task t_2; TID Cond: (ctid = first_tasks",
            ] {
                assert!(plan.contains(part), "tables {state}: no {part} in {plan}");
            }
        });
    }

    #[test]
    fn tasks_of_a_run_are_read_by_their_numbers_alive_and_ended() {
        check_states(async |client, state| {
            let plan = explain_statement(client, views::RUN_TASKS).await;
            let ranges = plan.matches("Index Cond: ((number >= $").count();
            assert_eq!(ranges, 2, "tables {state}: {plan}");
        });
    }

    #[test]
    fn views_find_their_rows_by_an_index_in_empty_and_in_full_tables() {
        check_plans(&[
            ("ENDED_RUNS", views::ENDED_RUNS, "using task_run_id on task live"),
            ("ENDED_RUNS", views::ENDED_RUNS, "using ended_task_run_id on ended_task ended"),
            ("RUN_TASKS", views::RUN_TASKS, "task_run_id"),
            ("LAST_TASK", views::LAST_TASK, "Index Only Scan Backward using ended_task_pkey"),
            ("PAYLOADS", views::PAYLOADS, "payload_pkey"),
            ("INPUTS", views::INPUTS, "ended_task_pkey"),
            ("READY_IN_GROUPS", views::READY_IN_GROUPS, "using task_ready on task"),
            (
                "RECORDS",
                records::RECORDS,
                "using ended_task_record on ended_task; Index Cond: ((record > $1) AND (record < $2))",
            ),
            (
                "RECORDS",
                records::RECORDS,
                "using record_pkey on record; Index Cond: ((number > $1) AND (number < $2))",
            ),
            ("RECORDS_OF_RUN", records::RECORDS_OF_RUN, "record_run"),
            (
                "RECORDS_OF_RUN",
                records::RECORDS_OF_RUN,
                "Index Cond: ((number >= $4) AND (number < $",
            ),
            ("RECORDS_OF_RUNS", records::RECORDS_OF_RUNS, "record_run"),
        ]);
    }
}
