//! Notes that a database which was at the same place before has left.

use super::support::until;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use tidegate::process::Command;
use tidegate::{Engine, RunOutcome, Task, Workflow};

/// When a process began, as the system counts it.
fn start_of(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, behind_name) = stat.rsplit_once(") ").unwrap();
    behind_name.split(' ').nth(19).unwrap().parse().unwrap()
}

#[tokio::test]
async fn command_that_old_notes_name_is_ended_and_new_commands_can_be_started() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("jobs.db-workers");
    std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    let mut sleep = std::process::Command::new("sleep");
    let mut left = sleep.arg("3600").stdin(Stdio::null()).process_group(0).spawn().unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (process, boot) = (left.id(), boot.trim());
    let start = start_of(process);
    let notes = format!("begin token\ngroup token {process} {start} {boot}\n");
    std::fs::write(folder.join("1.notes"), notes).unwrap();

    // The process is a child of this one, and stays until somebody asks how it ended.
    let ended = tokio::task::spawn_blocking(move || left.wait().unwrap());
    let task = Task::command("command", Command::new("true"));
    let builder = Engine::builder(format!("sqlite:{}", place.path().join("jobs.db").display()));
    let engine = builder.workflow(Workflow::of(task).unwrap()).start().await.unwrap();
    until("what was left is ended", async || ended.is_finished()).await;
    let run = engine.submit("command", ()).await.unwrap();
    assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
    assert!(!std::fs::read_to_string(folder.join("1.notes")).unwrap_or_default().contains("token"));
}
