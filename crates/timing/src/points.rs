//! A measured curve: a few points, straight lines between them.

/// Times by sizes. Rises, and ever more slowly: so two small messages never cost less than one large one.
#[derive(Clone, Debug, PartialEq)]
pub struct Points(Vec<(f64, f64)>);

/// Why points are no such curve: what they would have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointsError {
    /// A curve needs two points at least.
    #[error("two points at least")]
    TooFew,
    /// Sizes do not rise, or something is negative or not finite.
    #[error("points whose sizes rise from one to the next")]
    Order,
    /// Times fall.
    #[error("times that do not fall as sizes rise")]
    Falls,
    /// A later piece is steeper than an earlier one.
    #[error("a curve that is never steeper than it was before")]
    Steepens,
}

impl Points {
    /// A curve through `(size, time)`.
    ///
    /// # Errors
    /// Where the points are not those of a curve that rises ever more slowly.
    pub fn new(points: Vec<(f64, f64)>) -> Result<Self, PointsError> {
        if points.len() < 2 {
            return Err(PointsError::TooFew);
        }
        let fine = |n: f64| n.is_finite() && n >= 0.0;
        let mut slope = f64::INFINITY;
        for pair in points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            if ![x0, y0, x1, y1].into_iter().all(fine) || x1 <= x0 {
                return Err(PointsError::Order);
            }
            if y1 < y0 {
                return Err(PointsError::Falls);
            }
            let next = (y1 - y0) / (x1 - x0);
            // What two divisions of the same numbers may differ by.
            if next > slope * (1.0 + 1e-9) {
                return Err(PointsError::Steepens);
            }
            slope = next;
        }
        Ok(Self(points))
    }

    /// The time of a size: the first point's for all that is smaller, along the last piece for what is
    /// larger than the last point.
    #[must_use]
    pub fn at(&self, size: f64) -> f64 {
        let points = &self.0;
        let (first, last) = (points[0], points[points.len() - 1]);
        if size <= first.0 {
            return first.1;
        }
        let after = points.partition_point(|(x, _)| *x < size);
        let after = after.min(points.len() - 1);
        let ((x0, y0), (x1, y1)) = (points[after - 1], points[after]);
        let line = y0 + (size - x0) * (y1 - y0) / (x1 - x0);
        if size > last.0 {
            line.max(last.1)
        } else {
            line
        }
    }

    /// The points, as given.
    #[must_use]
    pub fn points(&self) -> &[(f64, f64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_followed_between_its_points_and_behind_the_last() {
        let curve = Points::new(vec![(10.0, 5.0), (20.0, 9.0), (40.0, 11.0)]).unwrap();
        let at = |x| curve.at(x);
        assert_eq!(
            [at(0.0), at(10.0), at(15.0), at(20.0)],
            [5.0, 5.0, 7.0, 9.0]
        );
        assert_eq!([at(30.0), at(40.0), at(60.0)], [10.0, 11.0, 13.0]);
    }

    #[test]
    fn what_is_no_curve_is_refused_with_the_reason() {
        let why = |points: &[(f64, f64)]| Points::new(points.to_vec()).unwrap_err();
        assert_eq!(why(&[(1.0, 1.0)]), PointsError::TooFew);
        assert_eq!(why(&[(2.0, 1.0), (1.0, 2.0)]), PointsError::Order);
        assert_eq!(why(&[(1.0, f64::NAN), (2.0, 2.0)]), PointsError::Order);
        assert_eq!(why(&[(1.0, 3.0), (2.0, 2.0)]), PointsError::Falls);
        let steep = [(0.0, 0.0), (1.0, 1.0), (2.0, 3.0)];
        assert_eq!(why(&steep), PointsError::Steepens);
    }
}
