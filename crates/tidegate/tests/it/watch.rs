//! Files that are waited for with the feature `watch`: the intervals are an hour long, so whatever
//! ends a wait here was told by the file system.

use futures_util::future::join_all;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate::{Condition, SlotPool, TaskHandle, condition};

const HOUR: Duration = Duration::from_secs(3600);

/// Far more than any machine needs for what is waited for here.
const ENOUGH: Duration = Duration::from_secs(60);

/// How many watches this process has on a folder.
fn watches(folder: &Path) -> usize {
    let Ok(folder) = fs::metadata(folder) else { return 0 };
    let number = format!("ino:{:x}", folder.ino());
    let files = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let of_one = |text: String| {
        let lines = text.lines().filter(|line| line.starts_with("inotify "));
        lines.filter(|line| line.split(' ').any(|word| word == number)).count()
    };
    texts.map(of_one).sum()
}

/// Waits until it is so; not for ever.
async fn until(mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(ENOUGH, wait).await.expect("it becomes so");
}

/// A folder, and somebody who waits.
struct Scene {
    folder: tempfile::TempDir,
    handle: TaskHandle,
}

impl Scene {
    async fn new() -> Self {
        let handle = TaskHandle::new(SlotPool::new(1).unwrap().acquire().await.unwrap());
        Scene { folder: tempfile::tempdir().unwrap(), handle }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Until the first look has said no and the next change in this folder is told.
    async fn watched(&self, folder: &Path) {
        until(|| !self.handle.is_slot_held() && watches(folder) == 1).await;
    }

    /// Begins to wait, does something, and sees that the wait ends by it.
    async fn ends(&self, condition: Condition, what: impl AsyncFnOnce()) {
        let wait = tokio::time::timeout(ENOUGH, self.handle.defer_until(condition, HOUR));
        let (waited, ()) = tokio::join!(wait, what());
        waited.expect("it is told").unwrap();
    }
}

#[tokio::test]
async fn a_wait_ends_once_the_file_is_made() {
    let scene = Scene::new().await;
    let make = async || {
        scene.watched(scene.folder.path()).await;
        fs::write(scene.path("other"), "").unwrap();
        fs::write(scene.path("in.csv"), "").unwrap();
    };
    scene.ends(condition::file(scene.path("in.csv")), make).await;
}

#[tokio::test]
async fn a_wait_ends_once_the_file_is_renamed_into_place() {
    let scene = Scene::new().await;
    fs::write(scene.path("in.csv.part"), "").unwrap();
    let rename = async || {
        scene.watched(scene.folder.path()).await;
        fs::rename(scene.path("in.csv.part"), scene.path("in.csv")).unwrap();
    };
    scene.ends(condition::file(scene.path("in.csv")), rename).await;
}

#[tokio::test]
async fn folders_on_the_way_may_be_made_later() {
    let scene = Scene::new().await;
    let make = async || {
        scene.watched(scene.folder.path()).await;
        fs::create_dir(scene.path("a")).unwrap();
        scene.watched(&scene.path("a")).await;
        // All at once, before any look.
        fs::create_dir_all(scene.path("a/b/c")).unwrap();
        fs::write(scene.path("a/b/c/in.csv"), "").unwrap();
    };
    scene.ends(condition::file(scene.path("a/b/c/in.csv")), make).await;
}

#[tokio::test]
async fn a_folder_may_go_and_another_come_in_its_place() {
    let scene = Scene::new().await;
    let inner = scene.path("inner");
    fs::create_dir(&inner).unwrap();
    let replace = async || {
        scene.watched(&inner).await;
        fs::remove_dir(&inner).unwrap();
        scene.watched(scene.folder.path()).await;
        fs::create_dir(&inner).unwrap();
        scene.watched(&inner).await;
        fs::rename(&inner, scene.path("moved away")).unwrap();
        scene.watched(scene.folder.path()).await;
        until(|| watches(&scene.path("moved away")) == 0).await;
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("in.csv"), "").unwrap();
    };
    scene.ends(condition::file(inner.join("in.csv")), replace).await;
}

#[tokio::test]
async fn an_unchanged_file_is_looked_at_when_its_quiet_time_is_over() {
    let scene = Scene::new().await;
    let path = scene.path("growing");
    let quiet = Duration::from_millis(200);
    let write = async || {
        scene.watched(scene.folder.path()).await;
        for size in 1..=5 {
            fs::write(&path, "x".repeat(size)).unwrap();
        }
    };
    scene.ends(condition::file_unchanged(&path, quiet), write).await;
    let quiet_for = fs::metadata(&path).unwrap().modified().unwrap().elapsed().unwrap();
    assert!(quiet_for >= quiet, "{quiet_for:?}");
    // One that is there already is told by nobody, but its quiet time is known.
    scene.ends(condition::file_unchanged(&path, quiet), async || {}).await;
}

/// The quiet time begins anew with the write, which is seen at once.
#[tokio::test]
async fn a_file_that_is_written_again_has_not_been_unchanged() {
    let scene = Scene::new().await;
    let path = scene.path("growing");
    fs::write(&path, "").unwrap();
    let write = async || {
        scene.watched(scene.folder.path()).await;
        fs::write(&path, "more").unwrap();
    };
    let quiet = Duration::from_millis(300);
    scene.ends(condition::file_unchanged(&path, quiet), write).await;
    let quiet_for = fs::metadata(&path).unwrap().modified().unwrap().elapsed().unwrap();
    assert!(quiet_for >= quiet, "{quiet_for:?}");
}

#[tokio::test]
async fn a_folder_is_watched_once_and_only_while_somebody_waits() {
    let folder = tempfile::tempdir().unwrap();
    let pool = SlotPool::new(1_000).unwrap();
    let wait = async |nth: usize| {
        let handle = TaskHandle::new(pool.acquire().await.unwrap());
        // Half of them for one file, the others for ten different ones.
        let name = if nth.is_multiple_of(2) { "same".to_owned() } else { format!("{}", nth % 20) };
        handle.defer_until(condition::file(folder.path().join(name)), HOUR).await.unwrap();
    };
    let all = join_all((0..1_000).map(&wait));
    let all_wait = async {
        until(|| pool.in_use() == 0 && watches(folder.path()) == 1).await;
    };
    tokio::select! {
        _ = all => panic!("nobody makes the files"),
        () = all_wait => {}
    }
    until(|| watches(folder.path()) == 0).await;
    // The next ones are watched anew, and all of them are told.
    let names: Vec<_> = (1..20).step_by(2).map(|nth| nth.to_string()).collect();
    let make = async {
        until(|| pool.in_use() == 0 && watches(folder.path()) == 1).await;
        for name in names.iter().map(String::as_str).chain(["same"]) {
            fs::write(folder.path().join(name), "").unwrap();
        }
    };
    let all = tokio::time::timeout(ENOUGH, join_all((0..1_000).map(&wait)));
    tokio::join!(make, async { all.await.expect("all are told") });
    until(|| watches(folder.path()) == 0).await;
}

/// The folder comes at any instant of the first look, also between its parts: it is made by a thread
/// that runs beside the one that looks, a little later each time. The file comes at once or after.
#[tokio::test]
async fn what_is_made_while_a_wait_begins_is_seen() {
    let scene = Scene::new().await;
    for (nth, at_once) in (0..16_u32).map(|nth| (nth, nth.is_multiple_of(2))) {
        let folders: Vec<_> = (0..32).map(|at| scene.path(&format!("{nth}-{at}"))).collect();
        let file = |folder: &PathBuf| folder.join("in.csv");
        let waits = folders.iter().map(file).map(condition::file);
        let waits = waits.map(|condition| scene.handle.defer_until(condition, HOUR));
        let all = tokio::time::timeout(ENOUGH, scene.handle.wait_all(waits));
        let make = async {
            // The looks begin in the driver's next turn.
            tokio::task::yield_now().await;
            let made = folders.iter().cloned().map(|folder| {
                tokio::task::spawn_blocking(move || {
                    (0..nth * 400).for_each(|_| std::hint::spin_loop());
                    fs::create_dir(&folder).unwrap();
                    if at_once {
                        fs::write(file(&folder), "").unwrap();
                    }
                })
            });
            join_all(made).await;
            if !at_once {
                until(|| !scene.handle.is_slot_held()).await;
                folders.iter().map(file).for_each(|file| fs::write(file, "").unwrap());
            }
        };
        let (all, ()) = tokio::join!(all, make);
        all.expect("all are seen").unwrap();
    }
}

/// The link's folder is watched, and nothing happens there when the file at its far end is made.
#[tokio::test]
async fn what_is_not_told_is_found_at_the_next_interval() {
    let (scene, far) = (Scene::new().await, tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(far.path().join("target"), scene.path("link")).unwrap();
    let every = Duration::from_millis(10);
    let wait = scene.handle.defer_until(condition::file(scene.path("link")), every);
    let make = async {
        scene.watched(scene.folder.path()).await;
        fs::write(far.path().join("target"), "").unwrap();
    };
    let (waited, ()) = tokio::join!(tokio::time::timeout(ENOUGH, wait), make);
    waited.expect("it is looked at").unwrap();
}

/// Files need no I/O of the runtime, and a watch asks for none.
#[test]
fn a_runtime_without_input_and_output_will_do() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let scene = Scene::new().await;
        let make = async || {
            scene.watched(scene.folder.path()).await;
            fs::write(scene.path("in.csv"), "").unwrap();
        };
        scene.ends(condition::file(scene.path("in.csv")), make).await;
    });
}

#[test]
fn the_feature_brings_no_crate_that_is_not_there_without_it() {
    let tree = |arguments: &[&str]| {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["tree", "--locked", "--offline"]);
        cargo.args(["-p", "tidegate", "--edges", "normal,build", "--prefix", "none"]);
        let answer = cargo.args(arguments).output().unwrap();
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
        let text = String::from_utf8(answer.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(tree(&["--features", "watch"]), tree(&[]));
}
