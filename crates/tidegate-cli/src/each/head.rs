//! The workflows of an `each`.
//!
//! The run that people see has one task, which begins runs of inputs as these are read, so that no run
//! grows without bound, and which ends when all have ended. It waits without its slot. Cancelling or
//! pausing it is doing so to all of them, since they belong to it.

use super::flow::{Chunk, Flow, Next};
use super::given::Given;
use crate::file::WaitFor;
use crate::plan::{Made, begin, body};
use crate::waves::{awaited_text, plain};
use serde_json::json;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tidegate::engine::RunStatus;
use tidegate::error::WorkflowError;
use tidegate::{
    Backoff, Context, OnFailure, Task, TaskError, TaskHandle, Value, Wait, WaitError, Workflow,
};

/// What comes behind the name of the run, for the runs of inputs.
const INPUTS: &str = ":inputs";

/// Where a run of inputs has them.
pub(super) const LIST: &str = "inputs";

/// One that is not to be begun any more is cancelled long before this.
const HELD_BACK: Duration = Duration::from_secs(86_400);

/// How commands are run.
#[derive(Clone)]
pub(super) struct Manner {
    pub(super) retries: u32,
    pub(super) timeout: Option<Duration>,
    pub(super) wait_for: Vec<WaitFor>,
    /// How what they are to wait for is made, and what they find in their environment.
    pub(super) made: Made,
}

/// The run that people see, and the runs of inputs.
///
/// # Errors
/// A name that is none.
pub(super) fn workflows(
    name: &str,
    manner: &Manner,
    folder: &Path,
    flow: &Arc<Flow>,
) -> Result<[Workflow; 2], WorkflowError> {
    let (inputs, flow) = (name.to_owned() + INPUTS, flow.clone());
    let commands = Workflow::builder(&inputs)
        // When to stop is told by the flow, over all runs.
        .on_failure(OnFailure::KeepGoing)
        .task(command(name, manner, &flow));
    let waits: Vec<_> =
        manner.wait_for.iter().map(|wait| (wait.clone(), awaited_text(folder, wait))).collect();
    let around = Arc::new((waits, manner.made.clone(), inputs, flow));
    let head = body(move |_, handle| {
        let around = around.clone();
        Box::pin(async move {
            let (waits, made, inputs, flow) = &*around;
            let waits = waits.iter().map(|(wait, name)| begin(handle, wait, made).named(name));
            handle.wait_all(waits).await?;
            feed(handle, inputs, flow).await
        })
    });
    Ok([Workflow::builder(name).task(Task::new(LIST, head)).build()?, commands.build()?])
}

fn command(name: &str, manner: &Manner, flow: &Arc<Flow>) -> Task {
    let made = manner.made.clone();
    let [making, hearing, storing] = [flow.clone(), flow.clone(), flow.clone()];
    let make = move |context: &Context| {
        if making.is_stopped() {
            return Err(TaskError::snooze(HELD_BACK));
        }
        let item: Value = context.item()?;
        let given = Given::from_json(&item);
        let given = given.ok_or_else(|| TaskError::permanent(format!("{item} is no input")))?;
        Ok(made.around(making.template().command(given.number, &given.inputs)))
    };
    let command = Task::command(name, make)
        .each(LIST)
        .retries(manner.retries)
        .backoff(Backoff::default())
        // What it writes is in its log.
        .without_output()
        .on_entry(move |event| hearing.hear(event))
        .on_stored_end(move |end| storing.hear_stored_end(end));
    match manner.timeout {
        Some(limit) => command.timeout(limit),
        None => command,
    }
}

/// What comes next for the head.
enum Heard {
    Flow(Result<Next, WaitError>),
    /// A run of inputs has ended.
    Ended(usize, Result<RunStatus, WaitError>),
}

/// Begins runs of inputs as there are any, and waits for all of them.
async fn feed(handle: &TaskHandle, inputs: &str, flow: &Flow) -> Result<(), TaskError> {
    let mut open: Vec<(u64, Wait<'_, RunStatus>)> = Vec::new();
    let mut begins = true;
    loop {
        // A new wait each time: it gives the slot back again, which whatever came before has taken.
        let next = handle.defer_while(flow.next(begins)).named("inputs");
        match hear(next, &mut open).await {
            Heard::Flow(next) => match next? {
                Next::Begin => {
                    let Chunk { first, list } = flow.begin();
                    open.push((first, handle.run_child(inputs, json!({ LIST: list }))));
                }
                Next::Over => begins = false,
                Next::Stop => return Err(verdict(flow).unwrap_or_else(|| "stopped".into())),
            },
            Heard::Ended(which, status) => {
                let (first, _) = open.swap_remove(which);
                flow.chunk_ended(first);
                status?;
            }
        }
        if !begins && open.is_empty() {
            return verdict(flow).map_or(Ok(()), Err);
        }
    }
}

async fn hear(mut next: Wait<'_, Next>, open: &mut [(u64, Wait<'_, RunStatus>)]) -> Heard {
    std::future::poll_fn(|cx| {
        for (which, (_, wait)) in open.iter_mut().enumerate() {
            if let Poll::Ready(status) = Pin::new(wait).poll(cx) {
                return Poll::Ready(Heard::Ended(which, status));
            }
        }
        Pin::new(&mut next).poll(cx).map(Heard::Flow)
    })
    .await
}

/// What is wrong about all of it, if something is.
fn verdict(flow: &Flow) -> Option<TaskError> {
    let score = flow.score();
    let (failed, first) = flow.failures_heard();
    match (failed, score.wrong) {
        (0, None) => None,
        (0, Some(wrong)) => Some(TaskError::permanent(wrong)),
        (failed, _) => {
            let first = first.map(|(name, why)| format!("; {}: {why}", plain(&name)));
            let what = format!("{failed} of {} failed{}", score.read, first.unwrap_or_default());
            Some(TaskError::permanent(what))
        }
    }
}
