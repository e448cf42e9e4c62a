//! At no instant do two copies of a command run, whatever happens to the worker that has begun it.

use super::*;
use tidegate::engine::Happened;
use tidegate::process;

/// A command that notes its worker each time it is begun, that lasts until it is told to stop, with
/// children of its own, and that notes if it finds another copy of itself alive.
pub(super) fn long(folder: &Path) -> process::Command {
    let line = "exec 9>lock; flock -n 9 || { echo twin >> twins; exit 9; }; echo $PPID >> begun; \
                if [ -e enough ]; then exit 0; fi; \
                if [ -e stubborn ]; then trap '' TERM; fi; \
                if [ -e wanderer ]; then setsid sleep 300 & fi; \
                (sleep 300 & wait) & wait";
    process::Command::shell(line).dir(folder)
}

/// Waits until the command has begun so many times, and says at which worker it did last.
pub(super) async fn begun(folder: &Path, times: usize) -> u32 {
    let all = || lines(folder.join("begun"));
    until("the command has begun", async || all().len() >= times).await;
    all()[times - 1].parse().unwrap()
}

/// Whether no process holds the lock of the command: nothing of it is left.
pub(super) fn is_gone(folder: &Path) -> bool {
    let lock = std::fs::File::open(folder.join("lock")).unwrap();
    lock.try_lock().is_ok()
}

/// Kills the worker at which the command runs while another is alive, so often, and starts a new one
/// each time; the last copy of it ends by itself.
async fn taken_over(rounds: usize, kill: impl AsyncFn(&Scene, &mut Worker), kinds: &[&str]) {
    let scene = Scene::new(Learns::Both).await;
    kinds.iter().for_each(|kind| scene.place.open(kind));
    let start = async || Worker::start(scene.path(), Learns::Both).await;
    let mut workers = vec![start().await, start().await];
    let run = scene.submit("long", "run").await;
    for round in 1..=rounds {
        let at = begun(scene.path(), round).await;
        let at = workers.iter().position(|worker| worker.id() == at).expect("a worker began it");
        let mut killed = workers.remove(at);
        if round == rounds {
            scene.place.open("enough");
        }
        kill(&scene, &mut killed).await;
        workers.push(start().await);
    }
    succeeds(&run).await;
    assert!(is_gone(scene.path()));
    assert_eq!(lines(scene.path().join("twins")), [""; 0]);
    assert_eq!(lines(scene.path().join("begun")).len(), rounds + 1);
    let happened: Vec<_> = run.events().await.unwrap().iter().map(|record| record.what).collect();
    let mut wanted = vec![Happened::Recovered; rounds];
    wanted.push(Happened::Succeeded);
    assert_eq!(happened, wanted);
    scene.is_sound().await;
}

/// One death more, and it would be taken for what kills its workers.
const ROUNDS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_its_worker_is_killed_and_another_takes_over() {
    within(taken_over(ROUNDS, async |_, worker| worker.kill(), &[])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_it_does_not_want_to_end_and_a_grandchild_has_left_its_group() {
    let kinds = ["stubborn", "wanderer"];
    within(taken_over(2, async |_, worker| worker.kill(), &kinds)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_its_worker_is_stopped_and_then_killed() {
    let kill = async |scene: &Scene, worker: &mut Worker| {
        let before = lines(scene.path().join("begun")).len();
        worker.signal(Signal::STOP);
        // The other worker looks at least once before it can do this.
        let later = tidegate::Timestamp::from(std::time::SystemTime::now()) + ms(1_500);
        let probe = scene.client.submit("note", "probe").not_before(later).await.unwrap();
        succeeds(&probe).await;
        let begun = lines(scene.path().join("begun")).len();
        assert_eq!(begun, before, "a worker that is stopped keeps what it has");
        worker.kill();
    };
    within(taken_over(2, kill, &[])).await;
}
