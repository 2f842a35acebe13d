//! `model-pool import`: reads the configuration of another program, writes model files, and reports the result.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::{ImportArgs, ImportCommand};
use import::{Import, ImportContext, ImportedFiles};

/// Larger files are refused.
const BYTES_MAX: u64 = 16 << 20;

pub fn run(command: &ImportCommand) -> Result<(), String> {
    let args = match command {
        ImportCommand::LlamaSwap(args) | ImportCommand::Litellm(args) => args,
    };
    let text = read(&args.file)?;
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let import = match command {
        ImportCommand::LlamaSwap(_) => {
            let folder = args.file.parent().unwrap_or(Path::new("."));
            let around = ImportContext {
                environment: &environment,
                host_memory_gib: host_memory_gib(),
                folders: &[Path::new("."), folder],
            };
            import::llama_swap(&args.file, &text, &around)
        }
        ImportCommand::Litellm(_) => import::litellm(&args.file, &text, &environment),
    };
    let import = import.map_err(|error| error.to_string())?;
    let written = import
        .write(&args.into, args.force)
        .map_err(|fault| fault.to_string())?;
    report(&import, &written);
    let left_out = import.left_out.len();
    match left_out {
        0 => Ok(()),
        _ => Err(format!(
            "{left_out} of {} models were left out, for the reasons above; the others are in {}",
            left_out + import.models.len(),
            show(args)
        )),
    }
}

/// Returns half of this machine's memory in GiB, or `None` if a file of NVIDIA's driver exists.
fn host_memory_gib() -> Option<u64> {
    const DRIVERS: [&str; 3] = ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"];
    if DRIVERS.iter().any(|file| Path::new(file).exists()) {
        return None;
    }
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some((kib >> 21).max(1))
}

fn read(file: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
    let size = std::fs::metadata(file).map_err(failed)?.len();
    if size > BYTES_MAX {
        return Err(format!(
            "{} has {size} bytes; a configuration has at most {BYTES_MAX}",
            file.display()
        ));
    }
    std::fs::read_to_string(file).map_err(failed)
}

fn show(args: &ImportArgs) -> std::path::Display<'_> {
    args.into.display()
}

fn report(import: &Import, written: &ImportedFiles) {
    for (model, path) in import.models.iter().zip(&written.models) {
        println!(
            "wrote {}: {} ({})",
            path.display(),
            model.name,
            model.engine
        );
    }
    println!("wrote {}", written.config.display());
    for note in &import.warnings {
        println!("warning: {note}");
    }
    for note in &import.left_out {
        println!("left out: {note}");
    }
    let models = match import.models.len() {
        1 => "1 model imported".to_owned(),
        count => format!("{count} models imported"),
    };
    println!(
        "{models}, {} left out, {} warnings; next: model-pool check --config {}",
        import.left_out.len(),
        import.warnings.len(),
        written.config.display()
    );
}
