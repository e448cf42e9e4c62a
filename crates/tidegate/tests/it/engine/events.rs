//! The status channel: blocks nobody, loses nothing that matters, says what it loses.

use super::gates::{Gates, is_sound, recorded, until_kind, with_gates};
use super::support::{Place, on_every_store};
use std::time::Duration;
use tidegate::engine::{Missed, Subscription, What};
use tidegate::{Backoff, Context, Event, RunId, RunOutcome, Task, TaskError, TaskHandle, Workflow};
use tidegate_core::lifecycle::{Kind, Reason};
use tidegate_core::store::Happened;

/// Fails if its input is odd.
async fn even(context: &mut Context<u64>) -> Result<u64, TaskError> {
    match context.input() % 2 {
        0 => Ok(*context.input()),
        _ => Err("it is odd".into()),
    }
}

/// Waits, fails once, and succeeds.
async fn eventful(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    if handle.attempt() == 1 {
        handle.defer_while(tokio::task::yield_now()).await?;
        handle.progress(0.5, "half");
        return Err("once more".into());
    }
    Ok(())
}

/// The next event that is told; what was missed is an error.
async fn next(events: &mut Subscription) -> Event {
    events.next().await.unwrap().expect("the engine is there")
}

/// All that is told of a run, to its end.
async fn story(events: &mut Subscription, run: RunId) -> Vec<What> {
    let mut story = Vec::new();
    while !matches!(story.last(), Some(What::Finished { .. })) {
        let event = next(events).await;
        assert_eq!(event.run, run);
        story.push(event.what);
    }
    story
}

on_every_store! {
    async fn a_subscriber_that_never_reads_blocks_nobody_and_learns_what_it_missed(place: Place) {
        const RUNS: u64 = 1_000;
        let workflow = Workflow::of(Task::new("even", even)).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let mut silent = engine.subscribe();
        let runs = engine.submit_many("even", 0..RUNS).await.unwrap();
        for (input, run) in (0..).zip(&runs) {
            let status = run.wait().await.unwrap();
            let (kind, what) = match input % 2 {
                0 => (Kind::Succeeded, Happened::Succeeded),
                _ => (Kind::Failed, Happened::Failed),
            };
            assert_eq!(status.tasks[0].kind, kind);
            let events = run.events().await.unwrap();
            let whats: Vec<Happened> = events.iter().map(|event| event.what).collect();
            assert_eq!(whats, [what], "every end is in the store");
        }
        engine.shutdown(Duration::ZERO).await;
        // Submitted, began, ended, finished.
        let told = 4 * RUNS;
        let Err(Missed { count }) = silent.next().await else {
            panic!("it is behind and was not told");
        };
        drop((engine, runs));
        let mut heard = 0;
        while let Some(event) = silent.next().await.expect("it is told once how much it missed") {
            heard += 1;
            drop(event);
        }
        assert!(heard >= 1_000, "{heard} events were kept");
        assert_eq!(count + heard, told);
        is_sound(&place.store().await).await;
    }

    async fn the_events_of_a_task_come_in_the_order_in_which_they_happened(place: Place) {
        let task = Task::new("eventful", eventful).retries(1).backoff(Backoff::fixed(Duration::ZERO));
        let engine = place.engine().workflow(Workflow::of(task).unwrap()).start().await.unwrap();
        let mut events = engine.subscribe();
        for _ in 0..20 {
            let run = engine.submit("eventful", ()).await.unwrap();
            let mut story = story(&mut events, run.id()).await;
            let task = || "eventful".to_owned();
            let Some(What::Deferred { wait, .. }) = story.get_mut(2) else {
                panic!("that it waits comes third: {story:?}");
            };
            assert!(!std::mem::take(wait).is_empty(), "what it waits for is told");
            let ended = |how, reason, attempt, error: Option<&str>| What::Ended {
                task: task(), how, reason, attempt, error: error.map(str::to_owned),
            };
            assert_eq!(story, [
                What::Submitted,
                What::Began { task: task(), attempt: 1, slot: None },
                What::Deferred { task: task(), wait: String::new() },
                What::Resumed { task: task() },
                What::Progress { task: task(), fraction: 0.5, message: "half".to_owned() },
                ended(Happened::Retried, Some(Reason::Error), 1, Some("once more")),
                What::Began { task: task(), attempt: 2, slot: None },
                ended(Happened::Succeeded, None, 2, None),
                What::Finished { outcome: RunOutcome::Succeeded },
            ]);
        }
    }

    async fn what_is_told_of_an_end_is_stored_before(place: Place) {
        let workflow = Workflow::of(Task::new("even", even)).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let (mut events, store) = (engine.subscribe(), place.store().await);
        for input in 0..20 {
            engine.submit("even", input).await.unwrap();
        }
        let mut finished = 0;
        while finished < 20 {
            let event = next(&mut events).await;
            let run = async || store.run(event.run).await.unwrap().unwrap();
            match event.what {
                What::Submitted => drop(run().await),
                What::Ended { how, .. } => assert_eq!(recorded(&store, event.run).await, [how]),
                What::Finished { outcome } => {
                    finished += 1;
                    assert_eq!(run().await.run.ended.unwrap().0, outcome);
                }
                _ => {}
            }
        }
    }

    async fn a_late_subscriber_hears_what_comes_after(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates).start().await.unwrap();
        let (early, late) = ("early", "late");
        let run = engine.submit("wait", early).await.unwrap();
        until_kind(engine.store(), run.id(), Kind::Deferred).await;
        let mut events = engine.subscribe();
        gates.open(early);
        let story = story(&mut events, run.id()).await;
        assert!(matches!(
            &story[..],
            [What::Resumed { .. }, What::Ended { how: Happened::Succeeded, .. }, What::Finished { .. }]
        ), "{story:?}");
        let mut later = engine.subscribe();
        gates.open(late);
        let run = engine.submit("hold", late).await.unwrap();
        for events in [&mut events, &mut later] {
            assert_eq!(next(events).await.run, run.id());
        }
    }

    async fn a_subscription_ends_with_the_engine(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates).start().await.unwrap();
        let mut events = engine.subscribe();
        gates.open("a");
        let run = engine.submit("hold", "a").await.unwrap();
        run.wait().await.unwrap();
        engine.shutdown(Duration::ZERO).await;
        // What was told before can still be heard, also by whoever keeps the engine's handle.
        story(&mut events, run.id()).await;
        assert_eq!(events.next().await, Ok(None));
        assert_eq!(engine.subscribe().next().await, Ok(None), "a late one sees it too");
    }
}
