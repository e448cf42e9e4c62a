//! Doing again what did not succeed in a run, whoever has begun it.
//!
//! A run of a file is gone on with here, as by `run --resume`. Any other goes back to its queue, to
//! whoever serves that.

use crate::args;
use crate::look::{self, Look, called};
use crate::run::{End, unusable};
use crate::store;
use crate::{Failure, resume};
use serde_json::Value;
use std::io::{self, Write as _};
use std::path::PathBuf;
use tidegate::Engine;
use tidegate::engine::{Retried, RunSummary, SubmitError};

/// Who is to do it.
enum Doer {
    /// This process, with the file of the run.
    Here { run: String, file: PathBuf },
    /// Whoever serves its queue, and it was begun.
    Others(End),
}

/// Does it, or gives it to whoever does.
///
/// # Errors
/// There is no such run, or it cannot be done again.
pub(crate) fn retry(args: args::Retry) -> Result<End, Failure> {
    let address = store::nearest(args.usual.store.as_deref())?.address;
    let named = look::args::Store { store: Some(address.clone()) };
    let doer = look::beside(&named, async |look: &Look| {
        let run = look::run(&look.engine, args.run.as_deref()).await?;
        let input = look.engine.store().input(run.key).await.map_err(unusable)?;
        let input = input.and_then(|input| serde_json::from_slice(&input).ok());
        let input: Value = input.unwrap_or_default();
        if input["each"].is_object() {
            let what = format!(
                "{} had its inputs from outside; give them again with tidegate each --resume={}",
                called(&run),
                run.id
            );
            return Err(Failure::Wrong(what));
        }
        match input["file"].as_str().filter(|_| !resume::is_submitted(&input)) {
            Some(file) => Ok(Doer::Here { run: run.id.to_string(), file: file.into() }),
            None => submit_again(&look.engine, &run, &args.tasks).await.map(Doer::Others),
        }
    })?;
    match doer {
        Doer::Others(end) => Ok(end),
        Doer::Here { run, file } => {
            let mut usual = args.usual;
            usual.store = Some(address);
            crate::run_file(&args::Run {
                file: Some(file),
                resume: Some(run),
                again: args.tasks,
                parallel_limit: args.parallel_limit,
                ..args::Run::of(usual)
            })
        }
    }
}

/// Begins a run for whoever serves the queue of the old one, and says which that is.
async fn submit_again(engine: &Engine, old: &RunSummary, tasks: &[String]) -> Result<End, Failure> {
    if old.ended.is_none() {
        let what = format!("{} has not ended; cancel it first, or wait for it", called(old));
        return Err(Failure::Undone(what));
    }
    match engine.retry(old.id).only(tasks).await {
        Ok(Retried::Begun { run, .. }) => crate::print(&format!("{}\n", run.id())),
        Ok(_) => {
            let what = format!("nothing is left to do: all of {} has succeeded", called(old));
            // Whoever closed stderr does not want to know.
            let _ = writeln!(io::stderr(), "{what}; name tasks to do them again");
            Ok(End::Succeeded)
        }
        Err(error @ SubmitError::Store(_)) => Err(unusable(error)),
        Err(error) => Err(Failure::Wrong(error.to_string())),
    }
}
