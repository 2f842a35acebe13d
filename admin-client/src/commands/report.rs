//! `report`: a summary of a period as a table, as CSV or as an HTML page.

use crate::cli::ReportArgs;
use crate::commands::Session;
use crate::decisions::Report;
use crate::error::CommandError;
use crate::render;

pub async fn run(session: &Session, args: &ReportArgs) -> Result<(), CommandError> {
    let from = match (&args.from, args.day) {
        (Some(from), _) => from.as_str(),
        (None, true) => "1d",
        (None, false) => "7d",
    };
    let mut query = vec![("from", from)];
    query.extend(args.to.as_deref().map(|to| ("to", to)));
    let format = match (args.csv, args.html) {
        (true, _) => Some("csv"),
        (_, true) => Some("html"),
        _ => None,
    };
    if let Some(format) = format {
        query.push(("format", format));
        let kind = format!("text/{format}");
        let text = session
            .client
            .get_text("admin/report", &query, &kind)
            .await?;
        return session.screen.print(text.trim_end());
    }
    let response = session.client.get("admin/report", &query).await?;
    session.show(&response, |report: &Report| {
        render::report::report(report, session.screen.style)
    })
}
