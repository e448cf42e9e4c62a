//! Three libraries that bring SQLite, in one program: they link, and each does its work.

use diesel::prelude::*;
use sqlx::Connection as _;
use std::time::Duration;
use tidegate::{Context, Engine, TaskError, Workflow, task};

#[task]
async fn double(context: &mut Context<u32>) -> Result<u32, TaskError> {
    Ok(context.input() * 2)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("tidegate-beside-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;

    let mut with_diesel = SqliteConnection::establish(":memory:")?;
    let seven = diesel::select(diesel::dsl::sql::<diesel::sql_types::Integer>("3 + 4"));
    let seven: i32 = seven.get_result(&mut with_diesel)?;

    let mut with_sqlx = sqlx::SqliteConnection::connect("sqlite::memory:").await?;
    let six: i64 = sqlx::query_scalar("SELECT 2 * 3").fetch_one(&mut with_sqlx).await?;

    let place = format!("sqlite:{}", folder.join("jobs.db").display());
    let engine = Engine::builder(place).workflow(Workflow::of(double::task())?).start().await?;
    let run = engine.submit("double", 21).await?;
    let answer: u32 = run.wait().await?.output("double")?;
    engine.shutdown(Duration::from_secs(5)).await;
    std::fs::remove_dir_all(&folder)?;

    assert_eq!((seven, six, answer), (7, 6, 42));
    println!("diesel, sqlx and tidegate are linked into one program, and all of them work");
    Ok(())
}
