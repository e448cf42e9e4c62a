//! Commands that are stopped for a while, and the numbers of their slots.

use super::support::*;
use std::collections::BTreeSet;
use tidegate::engine::{Happened, What};
use tidegate::process::{Command, Finished};
use tidegate::{Engine, Task, Workflow};

fn is_stopped(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim()));
    stat.is_ok_and(|stat| stat.contains(") T "))
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn commands_that_are_suspended_stop_with_all_they_have_started_and_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let line = "mkfifo gate; sleep 3600 & echo $! > child; echo $$ > own; \
                read line < gate; kill $!";
    let task = Task::command("long", Command::shell(line).dir(folder.path()));
    let workflow = Workflow::of(task).unwrap();
    let engine = Engine::builder("memory:").workflow(workflow).start().await.unwrap();
    let run = engine.submit("long", ()).await.unwrap();
    let process = |name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    until("it has begun", async || process("own").ends_with('\n')).await;
    let both = [process("own"), process("child")];
    engine.suspend_commands();
    until("both have stopped", async || both.iter().all(|one| is_stopped(one))).await;
    engine.unsuspend_commands();
    until("both go on", async || !both.iter().any(|one| is_stopped(one))).await;
    std::fs::write(folder.path().join("gate"), "go\n").unwrap();
    run.wait().await.unwrap().output::<Finished>("long").unwrap();
    // Nothing is left to be stopped.
    engine.suspend_commands();
}

#[tokio::test]
async fn a_command_knows_the_number_of_its_slot_and_events_tell_it() {
    // It ends only when all five have begun.
    let folder = tempfile::tempdir().unwrap();
    let line = "touch here.$TIDEGATE_TASK; while [ $(ls here.* | wc -l) -lt 5 ]; do sleep 0.01; done; \
                echo $TIDEGATE_SLOT";
    let mut workflow = Workflow::builder("five");
    for name in ["a", "b", "c", "d", "e"] {
        let task = Task::command(name, Command::shell(line).dir(folder.path()));
        workflow = workflow.task(task.weight(if name == "a" { 2 } else { 1 }));
    }
    let workflow = workflow.build().unwrap();
    let engine = Engine::builder("memory:").slots(6).workflow(workflow).start().await.unwrap();
    let mut events = engine.subscribe();
    let run = engine.submit("five", ()).await.unwrap();
    let status = run.wait().await.unwrap();
    let mut told = Vec::new();
    while told.len() < 5 {
        if let What::Began { task, slot, .. } = events.next().await.unwrap().unwrap().what {
            told.push((task, slot.unwrap()));
        }
    }
    let mut numbers = BTreeSet::new();
    for (task, slot) in told {
        let finished: Finished = status.output(&task).unwrap();
        assert_eq!(finished.stdout, format!("{slot}\n"));
        assert!(numbers.insert(slot) && (1..=6).contains(&slot), "{task} has {slot}");
    }
    // What is no command has none.
    let task =
        Task::new("plain", async |_: &mut tidegate::Context| Ok::<_, tidegate::TaskError>(()));
    let workflow = Workflow::of(task).unwrap();
    let engine = Engine::builder("memory:").workflow(workflow).start().await.unwrap();
    let mut events = engine.subscribe();
    engine.submit("plain", ()).await.unwrap();
    loop {
        match events.next().await.unwrap().unwrap().what {
            What::Began { slot, .. } => assert_eq!(slot, None),
            What::Ended { how, .. } => return assert_eq!(how, Happened::Succeeded),
            _ => {}
        }
    }
}
