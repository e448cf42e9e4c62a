//! Plans are read back as they were written, and nothing else is read as a plan.

use proptest::prelude::*;
use std::error::Error;
use std::time::Duration;
use tidegate_core::graph::{Graph, GraphError, Node, OnFailure, TaskIndex, When};
use tidegate_core::lifecycle::Rules;
use tidegate_core::plan::{BrokenLine, InvalidPlan, LimitUse, Plan, TaskPlan};
use tidegate_core::{Backoff, InvalidBackoff};

const SECOND: Duration = Duration::from_secs(1);

/// Three tasks that between them have everything a plan can say.
fn small() -> Plan {
    let graph = Graph::new([
        Node::new("extract"),
        Node::new("load \"all\"\n").after(["extract"]),
        Node::new("tidy\\ü").after(["load \"all\"\n", "extract"]).when(When::AllDone),
    ]);
    let load = TaskPlan {
        rules: Rules {
            retries: 3,
            backoff: Backoff::exponential(SECOND / 2, 1.5, SECOND * 60).expect("it makes sense"),
            queue_timeout: Some(SECOND * 3600),
            deadline: Some(Duration::MAX),
        },
        timeout: Some(Duration::from_nanos(1)),
        weight: 2,
        priority: -7,
        parkable: true,
        each: Some("customers \"all\"".into()),
        fingerprint: Some("sh -c \"load\"".into()),
        limits: vec![
            LimitUse { name: "warehouse".into(), key: Some("customer.id".into()), units: 2 },
            LimitUse { name: "\u{2028}\t".into(), key: None, units: 1 },
        ],
    };
    let tasks = vec![TaskPlan::default(), load, TaskPlan::default()];
    Plan::new("nightly etl", graph.expect("it is a graph"), OnFailure::KeepGoing, tasks)
}

/// Stores are full of this text: a change of it is a new version.
const SMALL: &str = r#"tidegate plan 1
workflow "nightly etl" on_failure=keep_going
task "extract" when=all_succeeded weight=1 priority=0 parkable=no
retry times=0 first=1000000000ns factor=2 longest=300000000000ns jitter=0.1
task "load \"all\"\n" when=all_succeeded weight=2 priority=-7 parkable=yes timeout=1ns queue_timeout=3600000000000ns deadline=18446744073709551615999999999ns each="customers \"all\"" fingerprint="sh -c \"load\""
after "extract"
retry times=3 first=500000000ns factor=1.5 longest=60000000000ns jitter=0
limit "warehouse" units=2 key="customer.id"
limit "\u{2028}\u{9}" units=1
task "tidy\\ü" when=all_done weight=1 priority=0 parkable=no
after "load \"all\"\n"
after "extract"
retry times=0 first=1000000000ns factor=2 longest=300000000000ns jitter=0.1
end
"#;

fn text(plan: &Plan) -> String {
    String::from_utf8(plan.encode()).expect("plans are text")
}

fn refusal(text: &str) -> InvalidPlan {
    Plan::decode(text.as_bytes()).expect_err(text)
}

#[test]
fn a_plan_of_items_is_short_however_many_they_are() {
    let task = TaskPlan { weight: 3, ..TaskPlan::default() };
    let plan = Plan::items("etl", "transform", 1_000, OnFailure::KeepGoing, task);
    let written = text(&plan);
    let wanted = "tidegate plan 1\nworkflow \"etl\" on_failure=keep_going\nitems count=1000\n\
                  task \"transform\" when=all_succeeded weight=3 priority=0 parkable=no\n\
                  retry times=0 first=1000000000ns factor=2 longest=300000000000ns jitter=0.1\nend\n";
    assert_eq!(written, wanted);
    assert_eq!(Plan::decode(written.as_bytes()).unwrap(), plan);
    let last = TaskIndex::from_u32(999);
    assert_eq!((plan.task_count(), plan.items_of()), (1_000, Some("transform")));
    assert_eq!((plan.graph().name(last), plan.known_as(last)), ("transform[999]", "transform"));
    assert_eq!(plan.task(last).weight, 3);
    for (right, wrong) in [
        ("count=1000", "count=0"),
        ("count=1000", "count=100001"),
        ("items count=1000\n", "items\n"),
        (
            "end\n",
            "task \"b\" when=all_succeeded weight=3 priority=0 parkable=no\nretry times=0 \
          first=1000000000ns factor=2 longest=300000000000ns jitter=0.1\nend\n",
        ),
        ("retry", "after \"transform\"\nretry"),
    ] {
        refusal(&written.replacen(right, wrong, 1));
    }
}

#[test]
fn a_plan_is_written_for_people_and_read_back_as_it_was() {
    assert_eq!(text(&small()), SMALL);
    let plan = Plan::decode(SMALL.as_bytes()).unwrap();
    assert_eq!(plan, small());
    assert_eq!((plan.workflow(), plan.on_failure()), ("nightly etl", OnFailure::KeepGoing));
    assert_eq!((plan.graph(), plan.task_count()), (small().graph(), 3));
    let load = plan.graph().find("load \"all\"\n").unwrap();
    assert_eq!((load.as_u32(), plan.task(load).weight), (1, 2));
}

#[test]
fn a_task_that_says_nothing_takes_one_slot_and_is_not_retried() {
    let task = TaskPlan::default();
    assert_eq!((task.weight, task.priority, task.rules.retries), (1, 0, 0));
    assert_eq!((task.timeout, task.parkable, task.limits.len()), (None, false, 0));
    let clocks = (task.rules.queue_timeout, task.rules.deadline, task.rules.backoff);
    assert_eq!(clocks, (None, None, Backoff::default()));
}

#[test]
#[should_panic = "a plan has one entry for each task"]
fn a_plan_has_as_many_entries_as_its_graph_has_tasks() {
    let _ = Plan::new("etl", small().graph().clone(), OnFailure::FailFast, vec![]);
}

#[test]
fn a_negative_zero_is_written_like_the_zero_it_equals() {
    let plan = |jitter| {
        let backoff = Backoff::fixed(SECOND).with_jitter(jitter).unwrap();
        let rules = Rules { backoff, ..Rules::default() };
        let task = TaskPlan { rules, ..TaskPlan::default() };
        Plan::new("w", Graph::new([Node::new("t")]).unwrap(), OnFailure::FailFast, vec![task])
    };
    assert_eq!(plan(-0.0), plan(0.0));
    assert_eq!(text(&plan(-0.0)), text(&plan(0.0)));
}

#[test]
fn the_order_and_repetition_of_dependencies_that_make_no_other_graph_make_no_other_text() {
    let plan = |after: &[&str]| {
        let nodes = [Node::new("a"), Node::new("b"), Node::new("c").after(after.iter().copied())];
        let tasks = vec![TaskPlan::default(); 3];
        Plan::new("w", Graph::new(nodes).unwrap(), OnFailure::FailFast, tasks)
    };
    assert_eq!(plan(&["b", "a", "b"]).encode(), plan(&["b", "a"]).encode());
    // The order of arguments is part of a graph.
    assert_ne!(plan(&["a", "b"]), plan(&["b", "a"]));
    assert_ne!(plan(&["a", "b"]).encode(), plan(&["b", "a"]).encode());
}

#[test]
fn what_does_not_begin_as_a_plan_is_none() {
    for other in ["", "\n", "tidegate plan 1", "tidegate plan one\n", "{\"plan\": 1}\n", "1\n"] {
        assert_eq!(refusal(other), InvalidPlan::NoPlan, "{other:?}");
    }
    let words = InvalidPlan::NoPlan.to_string();
    assert_eq!(words, "it does not begin with \"tidegate plan 1\"");
}

#[test]
fn another_version_is_refused_with_both_versions() {
    let refused = refusal(&SMALL.replacen("plan 1", "plan 27", 1));
    assert_eq!(refused, InvalidPlan::Version { found: 27, known: 1 });
    let words = "it is a plan of version 27, and this program reads version 1";
    assert_eq!(refused.to_string(), words);
}

#[test]
fn a_broken_line_is_refused_with_its_number_and_what_is_wrong() {
    for (right, wrong, number, words) in [
        // Lines.
        ("workflow", "work", 2, "stands where the workflow should be"),
        ("workflow", "\nworkflow", 2, "it ends where the workflow should be"),
        ("task \"extract\"", "task  \"extract\"", 3, "stands where a text in quotes should be"),
        ("after \"extract\"\nretry times=3", "retry times=3 ", 6, "where first= should be"),
        ("retry times=0", "retry tries=0", 4, "where times= should be"),
        ("retry times=0", "limit times=0", 4, "how it is retried, should be"),
        ("limit \"ware", "color \"ware", 8, "where a task, a limit or the end of the plan should"),
        ("end\n", "", 14, "it ends where a task, a limit or the end of the plan should be"),
        ("end\n", "end", 14, "where a task, a limit or the end of the plan should be"),
        ("end\n", "end\n\n", 15, "it ends where nothing, behind the end of the plan, should be"),
        ("end\n", "end\nend\n", 15, "\"end\" stands where nothing, behind the end of the plan,"),
        ("end\n", "end \n", 14, "where the end of the line should be"),
        ("end\n", "end\r\n", 14, r#""\u{d}" stands where the end of the line should be"#),
        // Fields.
        (" weight=1", "", 3, r#""priority=0 parkable=no" stands where weight= should be"#),
        (" weight=1", " weight=1 weight=1", 3, "stands where priority= should be"),
        (" weight=1 priority=0", " priority=0 weight=1", 3, "stands where weight= should be"),
        ("parkable=no", "parkable=no color=red", 3, r#""color=red" stands where the end of the"#),
        (" parkable=no", "", 3, "it ends where parkable= should be"),
        ("units=1", "units=1 key=\"a\" key=\"a\"", 9, "where the end of the line should be"),
        ("\"customer.id\"", "customer.id", 8, "\"customer.id\" stands where a text in quotes"),
        // Values.
        ("keep_going", "keep_coming", 2, "on_failure cannot be \"keep_coming\""),
        ("when=all_done", "when=done", 10, "when cannot be \"done\""),
        ("weight=2", "weight=-2", 5, "weight cannot be \"-2\""),
        ("priority=-7", "priority=4294967296", 5, "priority cannot be \"4294967296\""),
        ("parkable=yes", "parkable=true", 5, "parkable cannot be \"true\""),
        ("timeout=1ns", "timeout=1", 5, "timeout cannot be \"1\""),
        ("timeout=1ns", "timeout=1s", 5, "timeout cannot be \"1s\""),
        ("615999999999ns", "616000000000ns", 5, "deadline cannot be \"18446744073709551616"),
        ("times=3", "times=", 7, "times cannot be \"\""),
        ("factor=1.5", "factor=0.5", 7, "a back-off factor of 0.5 is not possible"),
        ("factor=1.5", "factor=NaN", 7, "a back-off factor of NaN is not possible"),
        ("jitter=0\n", "jitter=2\n", 7, "a jitter of 2 is not possible"),
        ("longest=60000000000ns", "longest=1ns", 7, "a longest pause of 1ns is shorter"),
        // Quotes.
        ("nightly etl\"", "nightly etl", 2, "a text in quotes does not end or has an unknown"),
        ("\\\\ü", "\\ü", 10, "a text in quotes does not end or has an unknown escape"),
        ("\\u{9}", "\\u{d800}", 9, "a text in quotes does not end or has an unknown escape"),
        ("\\u{9}", "\\u{9", 9, "a text in quotes does not end or has an unknown escape"),
        ("\\u{9}", "\\u{}", 9, "a text in quotes does not end or has an unknown escape"),
    ] {
        assert!(SMALL.contains(right), "{right}");
        let refused = refusal(&SMALL.replacen(right, wrong, 1)).to_string();
        assert!(refused.starts_with(&format!("line {number}: ")), "{wrong}: {refused}");
        assert!(refused.contains(words), "{wrong}: {refused}");
    }
}

#[test]
fn what_is_wrong_comes_as_data_too() {
    let wrong = |text: &str| match refusal(text) {
        InvalidPlan::Line { wrong, .. } => wrong,
        other => panic!("{other}"),
    };
    let backoff = wrong(&SMALL.replacen("factor=2", "factor=0", 1));
    assert_eq!(backoff, BrokenLine::Backoff(InvalidBackoff::Factor(0.0)));
    let long = wrong(&SMALL.replacen("weight=1", &format!("weight={}", "9".repeat(999)), 1));
    assert_eq!(long, BrokenLine::Value { field: "weight", found: "9".repeat(64) });
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_line() {
    let mut bytes = SMALL.as_bytes().to_vec();
    let at = SMALL.find('ü').unwrap();
    bytes[at] = 0xff;
    let refused = Plan::decode(&bytes).unwrap_err();
    assert_eq!(refused, InvalidPlan::Line { number: 10, wrong: BrokenLine::NotText });
    assert_eq!(refused.to_string(), "line 10: it is not UTF-8");
}

#[test]
fn tasks_that_make_no_graph_are_refused_with_the_error_of_the_graph() {
    let graph_error = |text: &str| match refusal(text) {
        InvalidPlan::Graph(error) => error,
        other => panic!("{other}"),
    };
    let cycle = graph_error(&SMALL.replacen("retry", "after \"tidy\\\\ü\"\nretry", 1));
    assert!(matches!(cycle, GraphError::Cycle { .. }), "{cycle}");
    let unknown = graph_error(&SMALL.replacen("after \"extract\"", "after \"extrakt\"", 1));
    assert!(matches!(unknown, GraphError::UnknownDependency { .. }), "{unknown}");
    let head = SMALL.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_eq!(graph_error(&format!("{head}\nend\n")), GraphError::NoTasks);
    let refused = refusal(&format!("{head}\nend\n"));
    assert!(refused.source().is_some_and(|error| error.is::<GraphError>()));
}

#[test]
fn a_plan_that_was_cut_off_anywhere_is_no_plan() {
    for length in 0..SMALL.len() {
        assert!(Plan::decode(&SMALL.as_bytes()[..length]).is_err(), "{length}");
    }
}

/// Any characters, and often those that could break a line, a field or a text.
fn any_text() -> impl Strategy<Value = String> {
    let nasty = prop::sample::select(
        "\"\\ \n\r\t\0=,u{}n\u{7f}\u{85}\u{2028}\u{2029}\u{200f}\u{feff}é漢🦀"
            .chars()
            .collect::<Vec<_>>(),
    );
    let any_char = prop_oneof![nasty, any::<char>()];
    prop::collection::vec(any_char, 0..12).prop_map(String::from_iter)
}

fn any_duration() -> impl Strategy<Value = Duration> {
    let exact = (any::<u64>(), 0..1_000_000_000u32).prop_map(|(s, nanos)| Duration::new(s, nanos));
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        any::<u16>().prop_map(|n| Duration::from_nanos(n.into())),
        any::<u32>().prop_map(|n| Duration::from_nanos(n.into())),
        any::<u32>().prop_map(|n| Duration::from_micros(n.into())),
        any::<u64>().prop_map(Duration::from_nanos),
        exact,
    ]
}

fn any_backoff() -> impl Strategy<Value = Backoff> {
    let factor = prop_oneof![
        Just(1.0),
        Just(f64::MAX),
        Just(f64::INFINITY),
        1.0..4.0,
        any::<f64>().prop_map(|any| any.abs().max(1.0)),
    ];
    let jitter =
        prop_oneof![Just(0.0), Just(-0.0), Just(1.0), Just(f64::MIN_POSITIVE), 0.0..=1.0f64];
    (any_duration(), any_duration(), factor, jitter).prop_map(|(one, other, factor, jitter)| {
        let backoff = Backoff::exponential(one.min(other), factor, one.max(other));
        backoff.and_then(|backoff| backoff.with_jitter(jitter)).expect("it makes sense")
    })
}

fn any_task() -> impl Strategy<Value = TaskPlan> {
    let clock = || prop::option::of(any_duration());
    let rules = (any::<u32>(), any_backoff(), clock(), clock()).prop_map(
        |(retries, backoff, queue_timeout, deadline)| Rules {
            retries,
            backoff,
            queue_timeout,
            deadline,
        },
    );
    let limit = (any_text(), prop::option::of(any_text()), any::<u32>())
        .prop_map(|(name, key, units)| LimitUse { name, key, units });
    let limits = prop::collection::vec(limit, 0..3);
    let each = prop::option::of(any_text());
    let fingerprint = prop::option::of(any_text());
    (rules, clock(), any::<u32>(), any::<i32>(), any::<bool>(), each, fingerprint, limits).prop_map(
        |(rules, timeout, weight, priority, parkable, each, fingerprint, limits)| TaskPlan {
            rules,
            timeout,
            weight,
            priority,
            parkable,
            each,
            fingerprint,
            limits,
        },
    )
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let when = prop::sample::select(vec![
        When::AllSucceeded,
        When::AllDone,
        When::AnyFailed,
        When::AnySucceeded,
    ]);
    let parents = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
    let task = (any_text(), when, parents, any_task());
    let on_failure = prop::sample::select(vec![
        OnFailure::FailFast,
        OnFailure::FailFastKill,
        OnFailure::KeepGoing,
    ]);
    let tasks = prop::collection::vec(task, 1..6);
    (any_text(), on_failure, tasks).prop_map(|(workflow, on_failure, tasks)| {
        let (mut nodes, mut plans) = (Vec::<Node>::new(), Vec::new());
        for (at, (name, when, parents, plan)) in tasks.into_iter().enumerate() {
            let parents = parents.into_iter().filter(|_| at > 0);
            let after: Vec<String> =
                parents.map(|parent| nodes[parent.index(at)].name.clone()).collect();
            let when = if after.is_empty() { When::AllDone } else { when };
            nodes.push(Node::new(format!("{name}{at}")).after(after).when(when));
            plans.push(plan);
        }
        let graph = Graph::new(nodes).expect("each comes after earlier ones");
        Plan::new(workflow, graph, on_failure, plans)
    })
}

proptest! {
    #[test]
    fn every_plan_is_read_back_as_it_was(plan in any_plan()) {
        let encoded = plan.encode();
        let decoded = Plan::decode(&encoded);
        prop_assert_eq!(decoded.as_ref(), Ok(&plan));
        prop_assert_eq!(decoded.unwrap().encode(), encoded.clone());
        // For people: nothing but ends of lines is hidden in it.
        let text = String::from_utf8(encoded).unwrap();
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }

    #[test]
    fn plans_are_equal_exactly_if_their_bytes_are(one in any_plan(), other in any_plan()) {
        prop_assert_eq!(one == other, one.encode() == other.encode());
    }

    /// Whatever happens to the bytes: they are refused, or are a plan that is read back.
    #[test]
    fn no_change_of_bytes_makes_reading_panic(
        plan in any_plan(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>()), 1..4),
    ) {
        let mut bytes = plan.encode();
        for (at, change, byte) in changes {
            let at = at.index(bytes.len());
            match change {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => { bytes.remove(at); }
                _ => bytes[at] ^= 1 << (byte % 8),
            }
        }
        if let Ok(changed) = Plan::decode(&bytes) {
            prop_assert_eq!(Plan::decode(&changed.encode()), Ok(changed));
        }
    }

    #[test]
    fn no_text_behind_the_first_line_makes_reading_panic(lines in prop::collection::vec(
        (prop::sample::select(SMALL.lines().collect::<Vec<_>>()), any_text()), 0..8,
    )) {
        let lines = lines.iter().map(|(line, noise)| format!("{line}{noise}\n"));
        let _ = Plan::decode(format!("tidegate plan 1\n{}", lines.collect::<String>()).as_bytes());
    }
}
