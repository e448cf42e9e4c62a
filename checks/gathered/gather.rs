//! The build script of the examples: makes each of them a module of one program, `all.rs`, because
//! each of them as a program of its own takes far longer to build.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    // One more example is named in the manifest too; the folder has also what examples leave there.
    println!("cargo::rerun-if-changed=Cargo.toml");
    let target = PathBuf::from(env::var("OUT_DIR")?);
    let mut names = Vec::new();
    for entry in fs::read_dir(".")? {
        let path = entry?.path();
        if path.extension() == Some("rs".as_ref()) {
            let name = path.file_stem().and_then(|name| name.to_str()).ok_or("a name in UTF-8")?;
            println!("cargo::rerun-if-changed={}", path.display());
            write_module(&path, &target.join(format!("{name}.rs")))?;
            names.push(name.to_owned());
        }
    }
    names.sort();
    let mut modules = String::new();
    for name in &names {
        let path = target.join(format!("{name}.rs"));
        modules += &format!("#[path = {path:?}]\nmod {name};\n");
    }
    let list: String =
        names.iter().map(|name| format!("({name:?}, {name}::run_example),")).collect();
    modules += &format!("const EXAMPLES: &[(&str, Example)] = &[{list}];\n");
    fs::write(target.join("modules.rs"), modules)?;
    Ok(())
}

/// Copies an example, whose `main` is its own, and makes it callable.
fn write_module(example: &Path, module: &Path) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(example)?;
    let entry = "pub(crate) fn run_example() -> Result<(), Box<dyn std::error::Error>> { main() }";
    fs::write(module, format!("{text}\n{entry}\n"))?;
    Ok(())
}
