//! Real worker processes, killed.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench")).args(arguments).output();
    let output = output.expect("the harness can be run");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_ends_twice_when_a_worker_is_killed_ten_times() {
    let output = bench(&["crash", "10"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("10 kills"), "{said}");
    assert!(!said.contains(" 0 acknowledged runs"), "{said}");
}

#[test]
fn a_task_that_kills_its_process_is_found_out_and_its_neighbours_succeed() {
    let output = bench(&["poison"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("the poison is out"), "{said}");
}

/// The harness starts a server of its own.
#[cfg(feature = "postgres")]
mod postgres {
    use super::bench;

    #[test]
    fn nothing_acknowledged_is_lost_when_a_worker_and_its_server_are_killed() {
        let output = bench(&["crash", "8", "--postgres"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("8 kills and 2 crashes"), "{said}");
        assert!(!said.contains(" 0 acknowledged runs"), "{said}");
    }
}
