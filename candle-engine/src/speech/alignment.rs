//! Aligns the tokens of a window's text with its frames, as OpenAI's `timing.py`: the attention of certain heads, normalised and
//! filtered, and the cheapest path through it.

use super::spec::Stack;
use serde_json::Value;

/// Frames of the median filter.
const MEDIAN: usize = 7;

/// The heads of each layer of the decoder whose attention follows the recording.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AlignmentHeads(Vec<Vec<usize>>);

impl AlignmentHeads {
    /// Reads `alignment_heads` of `generation_config.json`. Heads that the decoder does not have are passed over. Without any, all
    /// heads in the upper half of the layers are used.
    pub fn read(generation: &Value, decoder: Stack) -> Self {
        let mut layers = vec![Vec::new(); decoder.layers];
        let pairs = generation["alignment_heads"].as_array();
        for pair in pairs.into_iter().flatten() {
            let number = |index: usize| pair[index].as_u64().map(|number| number as usize);
            let (Some(layer), Some(head)) = (number(0), number(1)) else {
                continue;
            };
            if let Some(heads) = layers.get_mut(layer)
                && head < decoder.heads
                && !heads.contains(&head)
            {
                heads.push(head);
            }
        }
        if layers.iter().all(Vec::is_empty) {
            for heads in layers.iter_mut().skip(decoder.layers / 2) {
                heads.extend(0..decoder.heads);
            }
        }
        Self(layers)
    }

    pub fn of_layer(&self, layer: usize) -> &[usize] {
        self.0.get(layer).map_or(&[], Vec::as_slice)
    }
}

/// The attention of text to a window, summed over heads: a row for each token, a column for each step of 20 ms.
pub(super) struct Attentions {
    sum: Vec<f32>,
    rows: usize,
    columns: usize,
    heads: usize,
}

impl Attentions {
    pub fn new(rows: usize, columns: usize) -> Self {
        let (rows, columns) = (rows.max(1), columns.max(1));
        Self {
            sum: vec![0.0; rows * columns],
            rows,
            columns,
            heads: 0,
        }
    }

    /// Adds the scores of a head before their softmax, as many rows. Scores of steps after the window's end are left out.
    pub fn add(&mut self, scores: &[f32]) {
        let seen = scores.len() / self.rows;
        let mut weights: Vec<f32> = Vec::with_capacity(self.sum.len());
        for row in scores.chunks_exact(seen) {
            let row = &row[..self.columns.min(seen)];
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let first = weights.len();
            weights.extend(row.iter().map(|score| (score - most).exp()));
            let sum: f32 = weights[first..].iter().sum();
            weights[first..]
                .iter_mut()
                .for_each(|weight| *weight /= sum);
            weights.resize(first + self.columns, 0.0);
        }
        normalise(&mut weights, self.columns);
        let rows = weights.chunks_exact(self.columns);
        for (row, sums) in rows.zip(self.sum.chunks_exact_mut(self.columns)) {
            add_medians(row, sums);
        }
        self.heads += 1;
    }

    /// The column in which each row begins, from the row `first` to the row before `end`, when time and text only move forward.
    pub fn beginnings(&self, first: usize, end: usize) -> Vec<usize> {
        let heads = self.heads.max(1) as f32;
        let rows = &self.sum[first * self.columns..end * self.columns];
        let costs: Vec<f64> = rows.iter().map(|sum| f64::from(-(sum / heads))).collect();
        cheapest_path(&costs, self.columns)
    }
}

/// Gives each column a mean of zero and a standard deviation of one.
fn normalise(weights: &mut [f32], columns: usize) {
    let rows = (weights.len() / columns).max(1) as f64;
    for column in 0..columns {
        let numbers = || weights[column..].iter().step_by(columns);
        let mean = numbers().map(|weight| f64::from(*weight)).sum::<f64>() / rows;
        let squares = numbers().map(|weight| (f64::from(*weight) - mean).powi(2));
        let deviation = (squares.sum::<f64>() / rows).sqrt();
        for weight in weights[column..].iter_mut().step_by(columns) {
            let normal = (f64::from(*weight) - mean) / deviation;
            *weight = if normal.is_finite() {
                normal as f32
            } else {
                0.0
            };
        }
    }
}

/// Adds the median of each number and its neighbours. The row is reflected at its ends.
fn add_medians(row: &[f32], sums: &mut [f32]) {
    let reach = MEDIAN / 2;
    if row.len() <= reach {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        return;
    }
    let last = row.len() - 1;
    for (place, sum) in sums.iter_mut().enumerate() {
        let mut near = [0.0; MEDIAN];
        for (offset, number) in near.iter_mut().enumerate() {
            let at = (place + offset).abs_diff(reach);
            *number = row[if at > last { 2 * last - at } else { at }];
        }
        let (_, median, _) = near.select_nth_unstable_by(reach, f32::total_cmp);
        *sum += *median;
    }
}

/// Dynamic time warping. Returns the first column of each row on the path.
fn cheapest_path(costs: &[f64], columns: usize) -> Vec<usize> {
    const DIAGONAL: u8 = 0;
    const UP: u8 = 1;
    const LEFT: u8 = 2;
    let rows = costs.len() / columns;
    let mut steps = vec![LEFT; rows * columns];
    // The costs of the row before, and a place before its first column.
    let mut above = vec![f32::INFINITY; columns + 1];
    above[0] = 0.0;
    for row in 0..rows {
        let mut current = vec![f32::INFINITY; columns + 1];
        for column in 0..columns {
            let (diagonal, up, left) = (above[column], above[column + 1], current[column]);
            let (before, step) = if diagonal < up && diagonal < left {
                (diagonal, DIAGONAL)
            } else if up < diagonal && up < left {
                (up, UP)
            } else {
                (left, LEFT)
            };
            let place = row * columns + column;
            steps[place] = step;
            current[column + 1] = (costs[place] + f64::from(before)) as f32;
        }
        above = current;
    }
    let mut first = vec![0; rows];
    let (mut row, mut column) = (rows.saturating_sub(1), columns - 1);
    while row > 0 {
        let step = if column == 0 {
            UP
        } else {
            steps[row * columns + column]
        };
        if step == LEFT {
            column -= 1;
            continue;
        }
        first[row] = column;
        row -= 1;
        if step == DIAGONAL {
            column -= 1;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DECODER: Stack = Stack {
        layers: 4,
        heads: 3,
        feed_forward: 8,
    };

    #[test]
    fn heads_are_those_of_the_file_or_of_the_upper_layers() {
        let named =
            json!({"alignment_heads": [[3, 0], [1, 2], [3, 1], [3, 0], [4, 0], [1, 3], ["a"], 7]});
        let heads = AlignmentHeads::read(&named, DECODER);
        assert!(heads.of_layer(0).is_empty());
        assert_eq!(heads.of_layer(1), [2]);
        assert_eq!(heads.of_layer(3), [0, 1]);
        assert!(heads.of_layer(9).is_empty());
        for without in [json!({}), json!({"alignment_heads": [[9, 9]]})] {
            let heads = AlignmentHeads::read(&without, DECODER);
            assert!(heads.of_layer(1).is_empty());
            assert_eq!(heads.of_layer(2), [0, 1, 2]);
        }
    }

    #[test]
    fn the_median_removes_a_peak_and_reflects_the_ends() {
        let row = [5.0, 1.0, 2.0, 90.0, 3.0, 4.0, 6.0, 7.0];
        let mut sums = [0.0; 8];
        add_medians(&row, &mut sums);
        // Around the first: 90 2 1 5 1 2 90. Around the last: 3 4 6 7 6 4 3.
        assert_eq!(sums, [2.0, 2.0, 3.0, 4.0, 4.0, 6.0, 6.0, 4.0]);
        let mut sums = [1.0; 3];
        add_medians(&[1.0, 2.0, 3.0], &mut sums);
        assert_eq!(sums, [2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_path_follows_the_attention_forward() {
        // Each row attends to its own part of the window.
        let (rows, columns) = (3, 60);
        let mut attentions = Attentions::new(rows, columns);
        let scores: Vec<f32> = (0..rows * 80)
            .map(|place| {
                let (row, column) = (place / 80, place % 80);
                let part = if column < 10 { 0 } else { column / 30 + 1 };
                if part == row { 9.0 } else { 0.0 }
            })
            .collect();
        attentions.add(&scores);
        let first = attentions.beginnings(0, rows);
        assert_eq!(first[0], 0);
        assert!(first[1].abs_diff(10) <= 3, "{first:?}");
        assert!(first[2].abs_diff(30) <= 3, "{first:?}");
    }

    #[test]
    fn more_rows_than_columns_and_equal_scores_have_a_path() {
        for (rows, columns) in [(5, 1), (5, 2), (1, 4), (40, 3)] {
            let mut attentions = Attentions::new(rows, columns);
            attentions.add(&vec![0.5; rows * 10]);
            let first = attentions.beginnings(0, rows);
            assert_eq!(first.len(), rows);
            assert!(first.is_sorted() && first.iter().all(|column| *column < columns));
        }
    }
}
