//! Generic parameters of every kind.

use tidegate::{Context, TaskError, task};

#[task]
async fn load<T>(_: &mut Context<T>) -> Result<(), TaskError> {
    Ok(())
}

#[task]
async fn lifetime<'a>(_: &'a mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task]
async fn number<const N: usize>(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task]
async fn clause(_: &mut Context) -> Result<(), TaskError>
where
    String: Clone,
{
    Ok(())
}

fn main() {
    let _ = load::task();
}
