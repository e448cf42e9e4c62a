//! The live view on a real terminal.

use crate::running::until;
use crate::screen::Terminal;
use crate::support::Scene;

const CTRL_C: u8 = 3;

/// Two that last until there is a file, one that waits, and one after them; see [`let_end`].
fn scene() -> Scene {
    Scene::with(
        r#"
        [run]
        name = "test"
        on_failure = "keep_going"
        parallel_limit = 3
        [tasks.first]
        run = "echo begins; echo of first; touch first; while [ ! -e one ]; do sleep 0.01; done"
        [tasks.a-task-with-a-long-name-that-does-not-fit-in-narrow-places]
        run = "touch second; while [ ! -e two ]; do sleep 0.01; done; printf 'no end'; exit 3"
        [tasks.waits]
        wait_for = { file = "there", every = "10ms" }
        run = "echo waited"
        [tasks.last]
        after = ["first", "waits"]
        run = "true"
        "#,
    )
}

async fn has_begun(scene: &Scene, terminal: &mut Terminal) {
    until("both have begun", || scene.has("first") && scene.has("second")).await;
    let all = "0 of 4 done";
    terminal.until("the view", |screen| screen.has(all) && screen.has("waits")).await;
}

fn let_end(scene: &Scene) {
    ["one", "two", "there"].iter().for_each(|file| scene.touch(file));
}

#[tokio::test]
async fn what_runs_and_what_waits_is_seen_and_at_the_end_the_view_is_gone() {
    let scene = scene();
    let mut terminal = Terminal::start(&scene, (80, 24), &["run"]);
    has_begun(&scene, &mut terminal).await;
    terminal
        .until("all of it", |screen| {
            let text = screen.text();
            let lines: Vec<_> = text.lines().collect();
            let [first, second, waits, counts] = lines[..] else { return false };
            first.starts_with("1: first ")
                && second
                    .starts_with("2: a-task-with-a-long-name-that-does-not-fit-in-narrow-places ")
                && waits.starts_with("   waits waits for there ")
                && counts.starts_with("0 of 4 done, 2 running, 1 waiting; ")
        })
        .await;
    scene.touch("one");
    terminal
        .until("what has ended, above", |screen| {
            let text = screen.text();
            let at = |part| text.find(part);
            let (Some(output), Some(end)) = (at("begins\nof first\n"), at("first: succeeded in "))
            else {
                return false;
            };
            let (Some(waits), Some(counts)) = (at("waits waits for"), at("1 of 4 done, 1 running"))
            else {
                return false;
            };
            output.max(end) < waits && waits < counts && text[counts..].contains(" left")
        })
        .await;
    let_end(&scene);
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(1));
    let text = screen.text();
    assert!(!text.contains("of 4 done") && !text.contains("waits for"), "{text}");
    // What has no end of its own gets one here.
    assert!(text.contains("no end\n") && text.contains("3 of 4 tasks succeeded in "), "{text}");
}

#[tokio::test]
async fn no_line_of_the_view_is_broken_however_wide_the_terminal_is() {
    for columns in [20, 80, 300] {
        let scene = scene();
        let mut terminal = Terminal::start(&scene, (columns, 24), &["run"]);
        has_begun_in(&scene, &mut terminal, columns).await;
        terminal.until("nothing is broken", |screen| screen.broken() == 0).await;
        terminal.until("it is cut", |screen| screen.has("…") == (columns == 20)).await;
        let_end(&scene);
        assert_eq!(terminal.end().0, Some(1));
    }
}

async fn has_begun_in(scene: &Scene, terminal: &mut Terminal, columns: usize) {
    match columns {
        20 => {
            until("both have begun", || scene.has("first") && scene.has("second")).await;
            terminal.until("the view", |screen| screen.count("0 of 4 done") == 1).await;
        }
        _ => has_begun(scene, terminal).await,
    }
}

#[tokio::test]
async fn after_a_resize_the_view_is_there_once() {
    let scene = scene();
    let mut terminal = Terminal::start(&scene, (100, 24), &["run"]);
    has_begun(&scene, &mut terminal).await;
    for columns in [30, 29, 120, 25, 80] {
        terminal.resize(columns, 20).await;
        terminal
            .until("one view", |screen| {
                let lines = screen.text().lines().count();
                screen.count("0 of 4 done") == 1 && lines == 4 && screen.broken() == 0
            })
            .await;
    }
    let_end(&scene);
    assert_eq!(terminal.end().0, Some(1));
}

#[tokio::test]
async fn the_view_is_no_higher_than_the_terminal() {
    let tasks: String = (0..30)
        .map(|number| {
            format!("[tasks.t{number}]\nrun = \"while [ ! -e one ]; do sleep 0.05; done\"\n")
        })
        .collect();
    let scene = Scene::with(&tasks);
    let mut terminal = Terminal::start(&scene, (80, 10), &["run", "-j30"]);
    terminal
        .until("a part of it", |screen| screen.has("and 23 more\n0 of 30 done, 30 running"))
        .await;
    terminal
        .until("one view", |screen| screen.text().lines().count() == 9 && screen.count("more") == 1)
        .await;
    scene.touch("one");
    assert_eq!(terminal.end().0, Some(0));
}

#[tokio::test]
async fn ctrl_c_ends_the_run_and_takes_the_view_away() {
    let scene = scene();
    let mut terminal = Terminal::start(&scene, (80, 24), &["run"]);
    has_begun(&scene, &mut terminal).await;
    terminal.press(CTRL_C);
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130));
    let text = screen.text();
    assert!(!text.contains("of 4 done"), "{text}");
    assert!(text.contains("first: interrupted\n") && text.contains("go on with: "), "{text}");
}

#[tokio::test]
async fn wide_letters_are_counted_as_wide() {
    let scene = Scene::with(
        "[tasks.\"広い文字の名前がここにあります\"]\nrun = \"while [ ! -e one ]; do sleep 0.01; done\"\n",
    );
    let mut terminal = Terminal::start(&scene, (24, 24), &["run"]);
    terminal
        .until("a part of it", |screen| {
            screen.has("1: 広い文字の名前…  ") && screen.has("0 of 1 done") && screen.broken() == 0
        })
        .await;
    scene.touch("one");
    assert_eq!(terminal.end().0, Some(0));
}

#[tokio::test]
async fn without_colours_or_view_nothing_is_steered() {
    let scene = Scene::with("[tasks.a]\nrun = \"echo out; exit 3\"\n");
    let call = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = scene.command("", arguments);
        command.envs(variables.iter().copied());
        Terminal::start_with(&command, (80, 24)).end().1
    };
    let seen = call(&[], &["run"]);
    assert!(seen.coloured, "{}", seen.text());
    let seen = call(&[("NO_COLOR", "1")], &["run"]);
    assert!(!seen.coloured && seen.steered, "{}", seen.text());
    let seen = call(&[("NO_COLOR", "1")], &["run", "--color", "always"]);
    assert!(seen.coloured);
    let plain = [
        call(&[("TERM", "dumb")], &["run"]),
        call(&[], &["run", "--progress", "plain", "--color", "never"]),
    ];
    for seen in plain {
        assert!(!seen.coloured && !seen.steered && seen.has("a: started\n"), "{}", seen.text());
    }
    let seen = call(&[], &["run", "--progress", "none", "--color=never"]);
    assert!(!seen.steered && !seen.has("] a: ") && seen.has("failed: a: exit code 3\n"));
}
