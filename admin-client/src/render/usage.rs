//! The device time of a month as two tables: by model and payer, and by device. Pure.

use crate::decisions::{Usage, UsageOfDevice, UsageRow, UsageSums};
use crate::render::fold::sentence;
use crate::render::table::{Column, Row, column, table};
use crate::style::{Style, clean_line};
use terminal::row;

const COLUMNS: [Column; 9] = [
    column("MODEL").shortens_to(14),
    column("KEY").shortens_to(10),
    column("USED").right(),
    column("BATCHES").right().leaves(3),
    column("IDLE").right(),
    column("LOADING").right().leaves(2),
    column("ASLEEP").right().leaves(1),
    column("KWH").right(),
    column("COST").right(),
];

const DEVICES: [Column; 9] = [
    column("DEVICE").shortens_to(10),
    column("WALL").right(),
    column("USED").right(),
    column("IDLE").right(),
    column("LOADING").right().leaves(2),
    column("FOREIGN").right().leaves(1),
    column("CORDONED").right().leaves(3),
    column("FREE").right(),
    column("NOT KNOWN").right(),
];

const JOULES_PER_KWH: f64 = 3_600_000.0;

pub fn usage(usage: &Usage, style: Style) -> String {
    let total = UsageRow {
        model: "total".to_owned(),
        ..UsageRow::default()
    };
    let rows = usage.rows.iter().map(|row| line(row, &row.sums));
    let rows = rows.chain([line(&total, &usage.total)]);
    let nothing = "No device time in this month.";
    let period = format!("{}, {}; hours of a device", usage.month, usage.time_zone);
    let mut text = format!(
        "{}\n{}",
        sentence(&clean_line(&period), style),
        table(&COLUMNS, rows, nothing, style)
    );
    if !usage.devices.is_empty() {
        let devices = usage.devices.iter().map(device);
        text += &format!("\n{}", table(&DEVICES, devices, nothing, style));
    }
    text
}

fn line(row: &UsageRow, sums: &UsageSums) -> Row {
    let name = if row.name.is_empty() {
        &row.key
    } else {
        &row.name
    };
    let payer = match row.group.as_str() {
        "" => name.clone(),
        group => format!("{group}/{name}"),
    };
    row![
        &row.model,
        payer,
        hours(sums, "used"),
        hours(sums, "used_by_batches"),
        hours(sums, "idle"),
        hours(sums, "loading"),
        hours(sums, "asleep"),
        sums.energy_joules
            .map(|joules| format!("{:.3}", joules / JOULES_PER_KWH)),
        sums.cost.map(|cost| format!("{cost:.2}")),
    ]
}

fn device(device: &UsageOfDevice) -> Row {
    let of = |state| hours(&device.sums, state);
    row![
        &device.device,
        format!("{:.2}", device.wall_seconds / 3_600.0),
        of("used"),
        of("idle"),
        of("loading"),
        of("foreign"),
        of("cordoned"),
        of("free"),
        of("not_known"),
    ]
}

fn hours(sums: &UsageSums, state: &str) -> String {
    let seconds = sums.seconds.get(state).copied().unwrap_or_default();
    format!("{:.2}", seconds / 3_600.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_use_of_a_month_has_a_row_per_payer_and_per_device() {
        let view: Usage = serde_json::from_value(json!({
            "month": "2026-11", "time_zone": "UTC",
            "rows": [{"model": "org/m", "group": "lab", "key": "k3", "name": "ann",
                "seconds": {"used": 3600.0, "used_by_batches": 900.0, "idle": 1800.0}, "energy_joules": 7_200_000.0, "cost": 2.5}],
            "total": {"seconds": {"used": 3600.0, "idle": 1800.0}, "energy_joules": null, "cost": null},
            "devices": [{"device": "gpu0", "wall_seconds": 86400.0, "seconds": {"used": 3600.0, "free": 81000.0}}]}))
        .expect("a view");
        let text = usage(&view, Style::PLAIN);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start));
        let row = line("org/m").expect("a row");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "org/m", "lab/ann", "1.00", "0.25", "0.50", "0.00", "0.00", "2.000", "2.50"
            ]
        );
        assert!(
            line("total").is_some_and(|row| row.contains("1.00")),
            "{text}"
        );
        assert!(
            line("gpu0").is_some_and(|row| row.contains("24.00") && row.contains("22.50")),
            "{text}"
        );
    }
}
