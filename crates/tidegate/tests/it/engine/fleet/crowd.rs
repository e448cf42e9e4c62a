//! Many tasks at several workers, one of which dies in the middle.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use tidegate::engine::{Happened, WorkerId};

/// Notes that it was entered, and waits for a moment if its number says so.
async fn entered(context: &mut Context<u64>, handle: &TaskHandle) -> Result<(), TaskError> {
    let place = context.state::<Place>()?;
    place.note("entered", &handle.task_execution_id().to_string());
    if context.input().is_multiple_of(3) {
        handle.sleep(ms(context.input() % 20)).await?;
    }
    Ok(())
}

pub(super) fn workflows() -> Vec<Workflow> {
    let chain = Workflow::builder("three")
        .task(Task::new("a", entered))
        .task(Task::new("b", entered).after(["a"]))
        .task(Task::new("c", entered).after(["b"]));
    vec![chain.build().unwrap(), Workflow::of(Task::new("single", entered)).unwrap()]
}

/// Each task of these tests ends by success.
fn is_end(what: Happened) -> bool {
    what == Happened::Succeeded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_two_thousand_tasks_ends_once_although_a_worker_dies() {
    const EACH: u64 = 500;
    const HELD: usize = 4;
    const TASKS: usize = 4 * EACH as usize + HELD;
    let scene = Scene::new(Learns::Both).await;
    let start = async || Worker::start_with(scene.path(), Learns::Both, 8, "default").await;
    // The one that dies has begun some tasks that it cannot end.
    let mut killed = start().await;
    let mut runs = scene.client.submit_many("hold", ["held"; HELD]).await.unwrap();
    scene.place.noted("begins", "held", HELD).await;
    let _second = start().await;
    runs.extend(scene.client.submit_many("three", 0..EACH).await.unwrap());
    runs.extend(scene.client.submit_many("single", 0..EACH).await.unwrap());
    // Both have ended some, and much is left.
    until("a good part is done", async || {
        let records = scene.records().await;
        let by: BTreeSet<_> = records.iter().filter_map(|record| record.worker).collect();
        records.len() > TASKS / 4 && by.len() == 2
    })
    .await;
    killed.kill();
    let recovered = async || {
        let records = scene.records().await;
        records.into_iter().filter(|it| it.what == Happened::Recovered).collect::<Vec<_>>()
    };
    until("what it had is taken over", async || recovered().await.len() >= HELD).await;
    let _third = start().await;
    scene.place.open("held");
    within(async {
        for run in &runs {
            succeeds(run).await;
        }
    })
    .await;

    let records = scene.records().await;
    let mut ends: BTreeMap<_, usize> = BTreeMap::new();
    for record in records.iter().filter(|record| is_end(record.what)) {
        *ends.entry((record.run_id, record.task)).or_default() += 1;
    }
    assert_eq!(ends.len(), TASKS);
    assert!(ends.values().all(|&times| times == 1), "each has ended once");
    let entries = lines(scene.path().join("notes"));
    let executions: BTreeSet<&String> = entries.iter().collect();
    let entered = executions.iter().filter(|line| line.starts_with("entered ")).count();
    assert_eq!(entered, 4 * EACH as usize, "each was entered");
    assert_eq!(scene.place.count("begins", "held"), 2 * HELD, "once by each");

    // What the dead one had was taken over, and after that it has written nothing.
    let recovered = recovered().await;
    let dead: BTreeSet<WorkerId> = recovered.iter().filter_map(|record| record.worker).collect();
    assert_eq!(dead.len(), 1, "one has died");
    let by_it = records.iter().filter(|record| record.worker == dead.first().copied());
    let written = by_it.filter(|it| it.what != Happened::Recovered).map(|record| record.seq);
    assert!(written.max() < Some(recovered[0].seq), "the dead write nothing");
    scene.is_sound().await;
}
