//! `model-pool migrate-store --from URL --to URL`: copies the state into another database.

use std::str::FromStr;

use crate::cli::MigrateStoreArgs;
use config::DatabaseUrl;
use store::MovedTable;

pub fn run(args: &MigrateStoreArgs) -> Result<(), String> {
    let from = url("--from", &args.from)?;
    let to = url("--to", &args.to)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let moved = |table: &MovedTable| {
        if table.rows > 0 {
            println!("{:>12}  {}", table.rows, table.table);
        }
    };
    let all = runtime
        .block_on(store::move_store(&from.reveal(), &to.reveal(), moved))
        .map_err(|error| error.to_string())?;
    let rows: u64 = all.iter().map(|table| table.rows).sum();
    println!("moved {rows} rows from {from} to {to}; each table has as many rows as before");
    println!("{from} is unchanged: delete it when you no longer need it");
    println!("set `state.database_url: {to}` and start the service");
    Ok(())
}

/// Parses a URL and refuses passwords in it: every user of the machine can see a command line.
fn url(option: &str, text: &str) -> Result<DatabaseUrl, String> {
    let url = DatabaseUrl::from_str(text).map_err(|error| format!("{option}: {error}"))?;
    if url.has_password() {
        Err(format!(
            "{option} {url}: a password on the command line shows in the list of processes; leave it out, and write it to the file ~/.pgpass or the variable PGPASSWORD"
        ))
    } else {
        Ok(url)
    }
}
