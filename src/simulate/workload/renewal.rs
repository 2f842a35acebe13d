//! Requests of a client whose rate changes from window to window: a renewal process with the spread and shape of each window
//! (ServeGen's format for clients).

use rand::Rng;
use rand_distr::{Distribution, Exp1, Gamma, Weibull};
use rand_pcg::Pcg64Mcg;

/// The distribution of the gaps between requests; every shape has a mean of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Exponential,
    /// By the coefficient of variation of the gaps.
    Gamma {
        variation: f64,
    },
    /// By Weibull's own shape.
    Weibull {
        shape: f64,
    },
}

impl Shape {
    /// A gap in units of the mean gap.
    fn gap(self, random: &mut Pcg64Mcg) -> f64 {
        let exponential = |random: &mut Pcg64Mcg| random.sample::<f64, _>(Exp1);
        match self {
            Shape::Exponential => exponential(random),
            Shape::Gamma { variation } => {
                let shape = 1.0 / (variation * variation);
                match Gamma::new(shape, 1.0 / shape) {
                    Ok(gamma) => gamma.sample(random),
                    Err(_) => exponential(random),
                }
            }
            Shape::Weibull { shape } => match Weibull::new(1.0, shape) {
                Ok(weibull) => weibull.sample(random) / gamma_function(1.0 + 1.0 / shape),
                Err(_) => exponential(random),
            },
        }
    }
}

/// A time window with a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub from_seconds: f64,
    pub to_seconds: f64,
    pub per_second: f64,
    pub shape: Shape,
}

/// The times of a client's requests, in seconds.
#[derive(Debug)]
pub struct Renewal {
    windows: Vec<Window>,
    nth: usize,
    now_seconds: f64,
    random: Pcg64Mcg,
}

impl Renewal {
    pub fn new(windows: Vec<Window>, random: Pcg64Mcg) -> Renewal {
        let now_seconds = windows.first().map_or(0.0, |window| window.from_seconds);
        Renewal {
            windows,
            nth: 0,
            now_seconds,
            random,
        }
    }
}

impl Iterator for Renewal {
    type Item = f64;

    /// Draws a gap as a number of expected requests, and consumes it at the rates of the windows.
    fn next(&mut self) -> Option<f64> {
        let busy = |window: &Window| window.per_second > 0.0;
        let first = self.windows[self.nth.min(self.windows.len())..]
            .iter()
            .find(|window| busy(window))?;
        let mut left = first.shape.gap(&mut self.random);
        while let Some(window) = self.windows.get(self.nth) {
            let start = self.now_seconds.max(window.from_seconds);
            let room = (window.to_seconds - start).max(0.0) * window.per_second;
            if busy(window) && left <= room {
                self.now_seconds = start + left / window.per_second;
                return Some(self.now_seconds);
            }
            left -= room;
            self.now_seconds = window.to_seconds;
            self.nth += 1;
        }
        None
    }
}

/// Lanczos' approximation of the gamma function for arguments above 1/2 (coefficients of Godfrey for
/// g = 7, n = 9; relative error below 1e-13).
fn gamma_function(argument: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = argument - 1.0;
    let mut sum = COEFFICIENTS[0];
    for (nth, coefficient) in COEFFICIENTS.iter().enumerate().skip(1) {
        sum += coefficient / (x + nth as f64);
    }
    let t = x + 7.5;
    (2.0 * std::f64::consts::PI).sqrt() * t.powf(x + 0.5) * (-t).exp() * sum
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn count(windows: Vec<Window>) -> usize {
        Renewal::new(windows, Pcg64Mcg::seed_from_u64(7)).count()
    }

    #[test]
    fn every_shape_keeps_the_rate_of_its_window() {
        for shape in [
            Shape::Exponential,
            Shape::Gamma { variation: 2.0 },
            Shape::Weibull { shape: 0.7 },
        ] {
            let window = Window {
                from_seconds: 0.0,
                to_seconds: 100_000.0,
                per_second: 0.5,
                shape,
            };
            let count = count(vec![window]);
            assert!((47_000..53_000).contains(&count), "{shape:?}: {count}");
        }
    }

    #[test]
    fn no_request_is_generated_in_a_silent_window_and_times_are_sorted() {
        let window = |from: f64, per_second: f64| Window {
            from_seconds: from,
            to_seconds: from + 600.0,
            per_second,
            shape: Shape::Exponential,
        };
        let windows = vec![window(0.0, 1.0), window(600.0, 0.0), window(1200.0, 1.0)];
        let moments: Vec<f64> = Renewal::new(windows, Pcg64Mcg::seed_from_u64(1)).collect();
        assert!(moments.is_sorted());
        assert!(moments.iter().all(|at| *at <= 600.0 || *at >= 1200.0));
        assert!(moments.len() > 1000);
    }

    #[test]
    fn the_gamma_function_matches_factorials_and_the_square_root_of_pi() {
        assert!((gamma_function(5.0) - 24.0).abs() < 1e-10);
        assert!((gamma_function(1.5) - std::f64::consts::PI.sqrt() / 2.0).abs() < 1e-12);
    }
}
