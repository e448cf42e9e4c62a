//! A store that cannot be written while something runs: that is told once, and once when it can again.

use crate::tell::Teller;
use std::time::Duration;
use tidegate::Engine;

/// A store that fails for less is not worth a line.
const SHORT: Duration = Duration::from_millis(500);

/// Tells of the store's trouble until the engine has stopped.
pub(crate) fn tell_of_trouble(engine: &Engine, teller: &Teller) {
    let (engine, teller) = (engine.clone(), teller.clone());
    let mut changes = engine.health_changes();
    tokio::spawn(async move {
        let mut told = false;
        while changes.next().await.is_some() {
            if engine.health().store_error.is_some() {
                tokio::time::sleep(SHORT).await;
            }
            // It may have changed once more meanwhile; then the next round has nothing to tell.
            match engine.health().store_error {
                Some(error) if !told => {
                    told = true;
                    let error = crate::waves::plain(&error.cause().to_string());
                    teller.line(format!(
                        "the store cannot be written: {error}; trying again (Ctrl-C gives up)"
                    ));
                }
                None if told => {
                    told = false;
                    teller.line("the store can be written again");
                }
                _ => {}
            }
        }
    });
}
