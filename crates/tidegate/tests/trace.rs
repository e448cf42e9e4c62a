//! What whoever traces is told: in which run, task and attempt everything was logged.

#![allow(clippy::unwrap_used, reason = "what cannot happen in a test fails it")]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::{Context, Engine, Task, TaskError, TaskHandle, Value, Workflow, condition};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;

/// The spans that a line was logged in, from the outermost, each with its fields.
type Spans = Vec<(String, Fields)>;

#[derive(Debug, Clone, Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

/// A span: what it is, its fields, and the one that it is in.
type Known = (&'static Metadata<'static>, Fields, Option<u64>);

/// Keeps all lines with the spans they were logged in.
#[derive(Clone, Default)]
struct Lines {
    spans: Arc<Mutex<HashMap<u64, Known>>>,
    lines: Arc<Mutex<Vec<(String, Spans)>>>,
    last: Arc<AtomicU64>,
}

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn innermost() -> Option<u64> {
    ENTERED.with_borrow(|entered| entered.last().copied())
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidegate") || metadata.target() == "trace"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::default();
        span.record(&mut fields);
        let parent = match span.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if span.is_contextual() => innermost(),
            None => None,
        };
        self.spans.lock().unwrap().insert(id, (span.metadata(), fields, parent));
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut spans = Vec::new();
        let mut at = innermost();
        while let Some((metadata, fields, parent)) =
            at.and_then(|id| self.spans.lock().unwrap().get(&id).cloned())
        {
            spans.push((metadata.name().to_owned(), fields));
            at = parent;
        }
        spans.reverse();
        let message = fields.0.remove("message").unwrap_or_default();
        self.lines.lock().unwrap().push((message, spans));
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.pop());
    }

    fn current_span(&self) -> Current {
        let spans = self.spans.lock().unwrap();
        match innermost().and_then(|id| Some((id, spans.get(&id)?.0))) {
            Some((id, metadata)) => Current::new(Id::from_u64(id), metadata),
            None => Current::none(),
        }
    }
}

async fn waits(_: &mut Context<Value>, handle: &TaskHandle) -> Result<(), TaskError> {
    tracing::info!(target: "trace", "the body begins");
    let mut looks = 0;
    let look = || {
        looks += 1;
        tracing::info!(target: "trace", "a look of the task's own");
        let enough = looks == 2;
        async move { enough }
    };
    handle.defer_until(look, Duration::from_millis(1)).named("two looks").await?;
    let mut left = 2;
    let owned = condition::check(move || {
        left -= 1;
        tracing::info!(target: "trace", "a look of the shared poller");
        left == 0
    });
    handle.defer_until(owned, Duration::from_millis(1)).await?;
    let stored = async {
        tracing::info!(target: "trace", "a step");
        Ok::<_, TaskError>(1)
    };
    handle.step("once", stored).await?;
    handle.sleep(Duration::from_millis(20)).await?;
    tracing::info!(target: "trace", "the body ends");
    Ok(())
}

fn blocks(_: &mut Context<Value>) -> Result<(), TaskError> {
    tracing::info!(target: "trace", "on a thread of its own");
    Ok(())
}

/// What a span of this name says under this name.
fn said<'s>(spans: &'s Spans, span: &str, field: &str) -> &'s str {
    let found = spans.iter().find(|(name, _)| name == span);
    found.and_then(|(_, fields)| fields.0.get(field)).map_or("nothing", String::as_str)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_logged_has_run_task_and_attempt_and_entries_are_joined() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let workflow = Workflow::builder("flow")
        .task(Task::new("waits", waits).parkable())
        .task(Task::blocking("blocks", blocks).after(["waits"]))
        .build()
        .unwrap();
    let builder = Engine::builder("memory:").slots(1).workflow(workflow);
    let engine = builder.park_after(Duration::ZERO).start().await.unwrap();
    let run = engine.submit("flow", ()).await.unwrap();
    run.wait().await.unwrap();
    engine.shutdown(Duration::from_secs(1)).await;

    let lines: Vec<(String, Spans)> = lines.lines.lock().unwrap().clone();
    let ours = lines.iter().filter(|(_, spans)| said(spans, "run", "run") == run.id().to_string());
    let ours: Vec<&(String, Spans)> = ours.collect();
    let times = |message: &str| ours.iter().filter(|(said, _)| said == message).count();
    // It was entered again when its sleep was over, and has stored its step.
    assert_eq!((times("the body begins"), times("the body ends"), times("a step")), (2, 1, 1));
    assert!(times("a look of the task's own") >= 4 && times("a look of the shared poller") >= 4);
    assert_eq!(times("on a thread of its own"), 1);

    let mut executions = BTreeMap::<&str, Vec<&str>>::new();
    for (message, spans) in &ours {
        let names: Vec<&str> = spans.iter().map(|(name, _)| name.as_str()).collect();
        let expected: &[&str] = if message.starts_with("a look") {
            &["run", "task", "attempt", "wait"]
        } else {
            &["run", "task", "attempt"]
        };
        assert_eq!(names, expected, "{message}");
        assert_eq!(said(spans, "run", "workflow"), "flow");
        assert_eq!(said(spans, "attempt", "attempt"), "1");
        if message == "a look of the task's own" {
            assert_eq!(said(spans, "wait", "wait"), "two looks");
        }
        executions.entry(said(spans, "task", "task")).or_default().push(said(
            spans,
            "task",
            "execution",
        ));
    }
    // Of two entries the execution is the same.
    for (task, mut of) in executions {
        of.dedup();
        assert_eq!(of.len(), 1, "{task}");
    }
    let entries = ours.iter().filter(|(message, _)| message == "the body begins");
    let entries: Vec<&str> = entries.map(|(_, spans)| said(spans, "attempt", "entry")).collect();
    assert_eq!(entries, ["1", "2"]);
}
