//! All examples in one program, for the tests: `EXAMPLE=web` picks one. A variable and no argument,
//! because some examples start themselves again, with arguments of their own.

use std::error::Error;

type Example = fn() -> Result<(), Box<dyn Error>>;

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::var("EXAMPLE").unwrap_or_default();
    let Some((_, run_example)) = EXAMPLES.iter().find(|(name, _)| *name == wanted) else {
        let names: Vec<_> = EXAMPLES.iter().map(|(name, _)| *name).collect();
        return Err(format!("EXAMPLE is {wanted:?}; the examples are {}", names.join(", ")).into());
    };
    run_example()
}
