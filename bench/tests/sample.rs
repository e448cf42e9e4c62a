//! The lines by which `compare` reads the programs of two revisions.

use serde_json::Value;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench")).args(arguments).output();
    output.expect("the harness can be run")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it prints text")
}

#[test]
fn sample_prints_one_line_of_json_for_each_part() {
    // In small, and without what needs the binary of the command line or a saturated machine.
    let figures = ["p1", "p2", "p3", "p4", "p5.plain", "p6", "p9"];
    let output = bench(&[&["sample", "--scale", "0.002"], &figures[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let names: Vec<_> = lines.iter().map(|line| line["figure"].as_str().unwrap_or("")).collect();
    let expected =
        "p1.uncontended p1.alike p1.mixed p2.1024 p2.64 p3 p4 p5.plain p6 p9.threads p9.alone";
    assert_eq!(names.join(" "), expected);
    for line in &lines {
        assert!(line["tasks"].as_u64().is_some_and(|tasks| tasks > 0), "{line}");
        assert!(line["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{line}");
        assert!(line["cpu_seconds"].is_f64(), "{line}");
        assert!(line["allocations"].is_u64() && line["allocated_bytes"].is_u64(), "{line}");
    }
    // A run allocates.
    assert!(lines[3]["allocations"].as_u64() > lines[3]["tasks"].as_u64(), "{}", lines[3]);
}

#[test]
fn sample_lists_its_parts() {
    let output = bench(&["sample", "--list"]);
    assert!(output.status.success());
    let listed = stdout(&output);
    assert!(listed.lines().any(|name| name == "p1.uncontended"), "{listed}");
    assert!(listed.lines().any(|name| name == "p11.beside"), "{listed}");
}

#[test]
fn unknown_figures_options_and_revisions_end_with_2() {
    let cases: [(&[&str], &str); 4] = [
        (&["sample", "p99"], "there is no figure \"p99\""),
        (&["compare", "HEAD", "p99"], "there is no figure \"p99\""),
        (&["compare", "--pairs", "0"], "--pairs takes a number of at least 1"),
        (
            &["compare", "no-such-revision", "p1"],
            "\"no-such-revision\" is neither a figure nor a revision",
        ),
    ];
    for (arguments, expected) in cases {
        let output = bench(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.starts_with("cannot ") && said.contains(expected), "{arguments:?}: {said}");
    }
}
