//! Tests of the account of device time: its prices, the part of batches, and its CSV.

use super::*;

fn sum(model: &str, payer: &str, state: &str, ms: u64) -> LedgerSum {
    LedgerSum {
        device: "gpu0".to_owned(),
        period: 0,
        model: model.to_owned(),
        payer: payer.to_owned(),
        state: state.to_owned(),
        amount: LedgerAmount {
            device_ms: ms,
            byte_seconds: ms.into(),
            energy_mj: ms * 300,
            energy_ms: if state == "used" { ms } else { 0 },
        },
    }
}

fn view(sums: &[LedgerSum], prices: &PricesSection) -> UsageView {
    let parts = UsageParts {
        month: "2026-11".to_owned(),
        time_zone: "UTC".to_owned(),
        by_payer: sums,
        by_device: sums,
        by_hour: &[],
        requests: &BTreeMap::new(),
        prices,
    };
    UsageView::new(&parts, |key| format!("name of {key}"), |_, _, _| true)
}

#[test]
fn a_bill_has_the_price_of_held_time_and_known_energy() {
    let sums = [
        sum("a", "k1", "used", 3_600_000),
        sum("a", "k1", "idle", 1_800_000),
        sum("a", "physics/lab/k2", "idle", 1_800_000),
        sum("", "", "free", 7_200_000),
    ];
    let prices = PricesSection {
        device_hour: Some(2.0),
        kilowatt_hour: Some(0.5),
    };
    let found = view(&sums, &prices);
    let first = &found.rows[0];
    assert_eq!(first.sums.cost, Some(3.0 + 0.3 * 0.5), "300 W for an hour");
    assert_eq!(first.sums.energy_joules, Some(1_080_000.0));
    let second = &found.rows[1];
    let payer = (second.group.as_str(), second.key.as_str());
    assert_eq!(payer, ("physics/lab", "k2"));
    assert_eq!(second.sums.energy_joules, None, "unknown is not zero");
    assert_eq!(found.devices[0].wall_seconds, 14_400.0);
    assert_eq!(found.total.seconds.idle, 3_600.0);
    let free = view(&sums, &PricesSection::default());
    assert_eq!(free.total.cost, None);
}

#[test]
fn the_time_of_batches_is_a_part_of_the_used_time() {
    let sums = [
        sum("a", "k1", "used", 3_000),
        sum("a", "k1", "used_by_batches", 1_500),
    ];
    let found = view(&sums, &PricesSection::default());
    let seconds = &found.rows[0].sums.seconds;
    assert_eq!((seconds.used, seconds.used_by_batches), (4.5, 1.5));
    assert_eq!(found.devices[0].wall_seconds, 4.5, "it counts once");
    let text = found.csv();
    let (names, line) = text.split_once("\r\n").expect("a table");
    assert!(names.ends_with(",used_by_batches_seconds"), "{names}");
    assert!(
        line.contains(",4.500,") && line.contains(",1.500\r\n"),
        "{line}"
    );
}

#[test]
fn csv_cells_are_no_formulas() {
    let text = view(&[sum("=cmd()", "k1", "used", 1)], &PricesSection::default()).csv();
    assert!(text.contains("\"'=cmd()\""), "{text}");
    assert_eq!(text.lines().count(), 3);
    let cells = |line: &str| line.matches(',').count();
    let mut lines = text.lines();
    let head = lines.next().map(cells);
    assert!(lines.all(|line| Some(cells(line)) == head), "{text}");
}
