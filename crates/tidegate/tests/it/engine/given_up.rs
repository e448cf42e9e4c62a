//! Every wait that a store knows, dropped after every number of polls.
//!
//! A body polls a wait so many times, with everything around it going on in between, and drops it.
//! Whatever the wait was doing: no slot and no limit is lost, what it had received is there for the
//! next, and the task ends as if it had never waited.

use super::gates::is_sound;
use super::scene::until_quiet;
use super::support::{Place, on_every_store};
use crate::support::ms;
use futures_util::poll;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tidegate::engine::SignalError;
use tidegate::{
    Context, EngineBuilder, Limit, Run, RunOutcome, Task, TaskError, TaskHandle, Workflow,
};

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

/// More polls than most of the futures here need to end.
const POLLS: usize = 14;

fn one(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

/// Polls a future so often and drops it; what it came to, if it has ended.
async fn poll_and_drop<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(output) = poll!(&mut future) {
            return Some(output);
        }
        tokio::time::sleep(ms(1)).await;
    }
    None
}

/// Polls what its input says so often and drops it; then it receives what it has not received.
async fn gives_up(
    context: &mut Context<(String, usize)>,
    handle: &TaskHandle,
) -> Result<u32, TaskError> {
    let (what, polls) = context.input().clone();
    let signal = || handle.wait_for_signal_as::<u32>("go");
    let never = || handle.wait_for_signal_as::<u32>("never");
    let sleep = || handle.sleep(ms(3)).map(|()| 0);
    let child = || handle.run_child("quick", ()).map(|_| 0);
    let wait = match what.as_str() {
        "signal" => signal(),
        "time-out" => never().timeout(ms(2)),
        "sleep" => sleep(),
        "child" => child(),
        "releasing" => handle.run_child("limited", ()).releasing("api").map(|_| 0),
        "own run" => handle.wait_for_run(handle.run_id().unwrap()).map(|_| 0),
        "any" => handle.wait_any([never(), signal()]),
        "any, by time" => handle.wait_any([never(), sleep()]),
        "any, with a child" => handle.wait_any([child(), never()]),
        "all" => handle.wait_all([sleep(), signal(), child()]).map(|all| all[1]),
        "all, too late" => handle.wait_all([signal(), never()]).timeout(ms(4)).map(|_| 0),
        "nested" => {
            let all = handle.wait_all([signal(), sleep()]).map(|all| all[0]);
            handle.wait_any([never(), all]).timeout(HOUR)
        }
        other => panic!("{other} is no wait"),
    };
    let received = match poll_and_drop(wait, polls).await {
        Some(Ok(received)) => received,
        _ => 0,
    };
    let step = async {
        tokio::time::sleep(ms(2)).await;
        Ok::<(), TaskError>(())
    };
    poll_and_drop(handle.step("step", step), polls).await;
    match received {
        0 => Ok(signal().await?),
        received => Ok(received),
    }
}

async fn quick(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn with_all(engine: EngineBuilder) -> EngineBuilder {
    let task = |name: &str| Task::new(name, gives_up).limit("api");
    engine
        .slots(2)
        // How often a body polls says what it asks for: it is to be entered once.
        .park_after(HOUR)
        .workflow(one(task("gives up")))
        .workflow(one(task("could park").parkable()))
        .workflow(one(Task::new("quick", quick)))
        .workflow(one(Task::new("limited", quick).limit("api")))
        .limit(Limit::new("api").at_once(2))
}

const WAITS: [&str; 12] = [
    "signal",
    "time-out",
    "sleep",
    "child",
    "releasing",
    "own run",
    "any",
    "any, by time",
    "any, with a child",
    "all",
    "all, too late",
    "nested",
];

async fn given_up_at_any_point(place: &Place, workflow: &str) {
    let engine = with_all(place.engine()).start().await.unwrap();
    for polls in 0..POLLS {
        let mut runs: Vec<(&str, Run)> = Vec::new();
        for what in WAITS {
            runs.push((what, engine.submit(workflow, (what, polls)).await.unwrap()));
        }
        for (_, run) in &runs {
            run.signal("go", 7).await.unwrap();
        }
        for (what, run) in &runs {
            let status = run.wait().await.unwrap();
            let what = format!("{what}, {polls} polls");
            assert_eq!(status.outcome(), Some(RunOutcome::Succeeded), "{what}: {status:?}");
            assert_eq!(status.output::<u32>(workflow).unwrap(), 7, "{what}");
        }
    }
    until_quiet(&engine).await;
    assert!(engine.limits().await.unwrap().iter().all(|limit| limit.in_use == 0));
    is_sound(engine.store()).await;
    engine.shutdown(HOUR).await;
}

on_every_store! {
    async fn a_stored_wait_can_be_dropped_at_any_point(place: Place) {
        given_up_at_any_point(&place, "gives up").await;
    }

    async fn a_wait_that_could_be_parked_can_be_dropped_at_any_point(place: Place) {
        given_up_at_any_point(&place, "could park").await;
    }

    async fn sending_can_be_dropped_at_any_point_and_is_done_once_or_not_at_all(place: Place) {
        let engine = with_all(place.engine()).start().await.unwrap();
        for polls in 0..6 {
            let run = engine.submit("gives up", ("signal", 1_000)).await.unwrap();
            poll_and_drop(run.signal("go", 1), polls).await;
            // The run may have ended with that one.
            match run.signal("go", 2).await {
                Ok(()) | Err(SignalError::Over(_)) => {}
                Err(error) => panic!("{error}"),
            }
            let status = run.wait().await.unwrap();
            let received: u32 = status.output("gives up").unwrap();
            assert!(received == 2 || received == 1 && polls > 0, "{received} after {polls} polls");
        }
        is_sound(engine.store()).await;
        engine.shutdown(HOUR).await;
    }
}
