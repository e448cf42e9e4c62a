//! A worker: does what is submitted to its queues, until it is told to end.

use crate::file::ParallelLimit;
use crate::plan::{ITEMS, WAIT};
use crate::run::{self, Asked, End, GRACE, engine_config, not_started};
use crate::store::{self, Place};
use crate::view::{Printer, cause, written_short};
use crate::waves::{count, plain};
use crate::{Failure, args, submit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tidegate::engine::{Happened, What};
use tidegate::{Engine, Event, Retention, RunId, TaskError, Timestamp, Workflow};

/// So many workflows are remembered.
const REMEMBERED_MAX: usize = 64;

/// Works until it is told to end.
///
/// # Errors
/// It cannot begin.
pub(crate) fn work(args: &args::Worker) -> Result<End, Failure> {
    let limit = args.slots().map_err(Failure::Wrong)?;
    let place = store::nearest(args.store.as_deref())?;
    if place.is_memory() {
        let what = "nobody can submit to memory: from outside; name a file with --store";
        return Err(Failure::Wrong(what.to_owned()));
    }
    place.prepare()?;
    run::on_runtime(serve(args, limit, place))
}

async fn serve(args: &args::Worker, limit: ParallelLimit, place: Place) -> Result<End, Failure> {
    let mut asked = Asked::listen().map_err(|error| Failure::Undone(error.to_string()))?;
    let retention = Retention { runs: Some(store::KEPT), ..Retention::default() };
    let builder = Engine::builder(&place.address).config(engine_config());
    let builder = builder.queues(&args.queue).retention(retention);
    let cpus = args::cpus();
    let builder = match limit {
        ParallelLimit::Between(min, max) => builder.slots_between(min, max),
        limit => builder.slots(limit.most(cpus)),
    };
    let address = place.address.clone();
    let remembered = Remembered::default();
    let find = move |_: &str, input: Option<&[u8]>| remembered.find(&place, input);
    let engine = builder.find_workflows(find).start().await.map_err(not_started)?;
    let mut events = engine.subscribe();
    let mut view = View::new();
    let (slots, queues) = (count(limit.most(cpus) as usize, "slot"), args.queue.join(", "));
    view.printer.line(format!("serving {queues} of {address} with {slots}; end it with Ctrl-C"));
    let mut told: Option<End> = None;
    let mut stopping = None;
    loop {
        tokio::select! {
            biased;
            heard = asked.next() => {
                let (engine, again) = (engine.clone(), told.is_some());
                let grace = if heard == End::Interrupted { Duration::ZERO } else { GRACE };
                told.get_or_insert(heard);
                stopping = Some(tokio::spawn(async move {
                    match again {
                        true => engine.shutdown_now().await,
                        false => engine.shutdown(grace).await,
                    }
                }));
            }
            event = events.next() => match event {
                Ok(Some(event)) => view.hear(&event),
                Ok(None) => break,
                Err(missed) => view.printer.line(missed.to_string()),
            },
        }
    }
    let report = match stopping {
        Some(stopping) => stopping.await.ok(),
        None => None,
    };
    // Nobody reads stdout here, and whoever closed stderr does not want to know.
    let _ = view.printer.finish();
    match (told, report) {
        // Nothing was left undone.
        (Some(_), Some(report)) if report.handed_back.is_empty() => Ok(End::Succeeded),
        (Some(told), _) => Ok(told),
        (None, _) => Err(Failure::Store("the engine has stopped by itself".to_owned())),
    }
}

/// Workflows that were found, by what their runs work on.
#[derive(Default)]
struct Remembered(Mutex<HashMap<Box<[u8]>, Workflow>>);

impl Remembered {
    fn find(&self, place: &Place, input: Option<&[u8]>) -> Result<Workflow, TaskError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = input.unwrap_or_default();
        if let Some(workflow) = all.get(key) {
            return Ok(workflow.clone());
        }
        let workflow = submit::found(place, input)?;
        if all.len() == REMEMBERED_MAX {
            all.clear();
        }
        all.insert(key.into(), workflow.clone());
        Ok(workflow)
    }
}

/// Says what happens, a line each.
struct View {
    since: Timestamp,
    began: HashMap<(RunId, Arc<str>), Timestamp>,
    printer: Printer,
}

impl View {
    fn new() -> Self {
        View { since: SystemTime::now().into(), began: HashMap::new(), printer: Printer::start() }
    }

    fn hear(&mut self, event: &Event) {
        let say = |task: &str, what: &str| {
            let seconds = event.at.since(self.since).as_secs();
            let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
            let (run, task) = (event.run, plain(task));
            let line = format!("[{hours:02}:{minutes:02}:{seconds:02}] {run}/{task}: {what}");
            self.printer.line(line);
        };
        match &event.what {
            What::Began { task, .. } => {
                self.began.insert((event.run, task.as_str().into()), event.at);
                if !task.ends_with(WAIT) && !task.ends_with(ITEMS) {
                    say(task, "started");
                }
            }
            What::Deferred { task, wait } => {
                say(task.strip_suffix(WAIT).unwrap_or(task), &format!("waits for {}", plain(wait)));
            }
            What::Ended { task, how, error, .. } => {
                let began = self.began.remove(&(event.run, task.as_str().into()));
                let took = written_short(began.map_or(Duration::ZERO, |at| event.at.since(at)));
                let why = error.as_deref().map(cause).unwrap_or_default();
                let part = task.strip_suffix(WAIT).or(task.strip_suffix(ITEMS));
                match how {
                    Happened::Succeeded if part.is_none() => {
                        say(task, &format!("succeeded in {took}"));
                    }
                    Happened::Failed | Happened::TimedOut | Happened::Retried => {
                        say(part.unwrap_or(task), &format!("failed: {why}"));
                    }
                    Happened::Cancelled if part.is_none() => say(task, "cancelled"),
                    Happened::HandedBack if began.is_some() => say(task, "handed back"),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}
