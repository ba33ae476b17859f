// SPDX-License-Identifier: Apache-2.0
// The update rules, as in the Python package's optimizers: one struct each.
//
// A rule changes weights and slots in place, in any number of lanes. g: gradient, w: weights.
// The constructor says in which order Python gives the hyperparameters. Differences such as
// 1 - beta are given ready, because they were computed in double precision.
#ifndef TPU_ESTIMATOR_EMBEDDING_RULES_H_
#define TPU_ESTIMATOR_EMBEDDING_RULES_H_

#include "row_optimizer.h"
#include "vectors.h"

namespace tpu_estimator_embedding {
namespace {

template <class T>
inline T SoftThreshold(T point, T rate, float l1, float l2) {
  const T beyond = Abs(point) - rate * l1;
  return Sign(point) * (beyond > T{} ? beyond : T{}) / (1.0f + rate * l2);
}

struct Sgd {
  static constexpr int kNumSlots = 0;
  static constexpr bool kMayMoveUntouched = false;
  float rate;
  explicit Sgd(const RowOptimizer& o) : rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T*) const {
    w = w - rate * g;
  }
};

struct Adagrad {
  static constexpr int kNumSlots = 1;
  static constexpr bool kMayMoveUntouched = false;
  float rate;
  explicit Adagrad(const RowOptimizer& o) : rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T& accumulator = slots[0];
    accumulator = accumulator + g * g;
    w = w - rate * g / Sqrt(accumulator);
  }
};

struct ProximalAdagrad {
  static constexpr int kNumSlots = 1;
  static constexpr bool kMayMoveUntouched = false;
  float rate, l1, l2;
  explicit ProximalAdagrad(const RowOptimizer& o)
      : rate(o.learning_rate), l1(o.hyperparameters[0]), l2(o.hyperparameters[1]) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T& accumulator = slots[0];
    accumulator = accumulator + g * g;
    const T scaled_rate = rate / Sqrt(accumulator);
    w = SoftThreshold(w - scaled_rate * g, scaled_rate, l1, l2);
  }
};

struct AdagradMomentum {
  static constexpr int kNumSlots = 2;
  static constexpr bool kMayMoveUntouched = false;
  float rate, mu, exponent, kept, added, epsilon;
  bool is_nesterov;
  explicit AdagradMomentum(const RowOptimizer& o)
      : rate(o.learning_rate),
        mu(o.hyperparameters[0]),
        exponent(o.hyperparameters[1]),
        kept(o.hyperparameters[2]),
        added(o.hyperparameters[3]),
        epsilon(o.hyperparameters[4]),
        is_nesterov(o.hyperparameters[5] != 0) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &accumulator = slots[0], &momentum = slots[1];
    accumulator = kept * accumulator + added * (g * g);
    const T scaled = g * Power(accumulator + epsilon, exponent);
    momentum = mu * momentum + scaled;
    w = w - rate * (is_nesterov ? mu * momentum + scaled : momentum);
  }
};

struct Momentum {
  static constexpr int kNumSlots = 1;
  static constexpr bool kMayMoveUntouched = false;
  float rate, mu;
  bool is_nesterov;
  explicit Momentum(const RowOptimizer& o)
      : rate(o.learning_rate), mu(o.hyperparameters[0]), is_nesterov(o.hyperparameters[1] != 0) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T& momentum = slots[0];
    momentum = mu * momentum + g;
    w = w - rate * (is_nesterov ? g + mu * momentum : momentum);
  }
};

struct RmsProp {
  static constexpr int kNumSlots = 2;
  static constexpr bool kMayMoveUntouched = false;
  float rate, added, mu, epsilon;
  explicit RmsProp(const RowOptimizer& o)
      : rate(o.learning_rate),
        added(o.hyperparameters[0]),
        mu(o.hyperparameters[1]),
        epsilon(o.hyperparameters[2]) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &mean_square = slots[0], &momentum = slots[1];
    mean_square = mean_square + added * (g * g - mean_square);
    momentum = mu * momentum + rate / Sqrt(mean_square + epsilon) * g;
    w = w - momentum;
  }
};

struct Adam {
  static constexpr int kNumSlots = 2;
  static constexpr bool kMayMoveUntouched = true;
  float rate, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  bool is_epsilon_in_root;  // then it is squared already
  explicit Adam(const RowOptimizer& o)
      : rate(o.learning_rate),
        beta1(o.hyperparameters[0]),
        one_minus_beta1(o.hyperparameters[1]),
        beta2(o.hyperparameters[2]),
        one_minus_beta2(o.hyperparameters[3]),
        epsilon(o.hyperparameters[4]),
        is_epsilon_in_root(o.hyperparameters[5] != 0) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &momentum = slots[0], &velocity = slots[1];
    momentum = beta1 * momentum + one_minus_beta1 * g;
    velocity = beta2 * velocity + one_minus_beta2 * (g * g);
    const T root = is_epsilon_in_root ? Sqrt(velocity + epsilon) : Sqrt(velocity) + epsilon;
    w = w - rate * momentum / root;
  }
};

struct Ftrl {
  static constexpr int kNumSlots = 2;
  static constexpr bool kMayMoveUntouched = false;
  float rate, power, l1, l2, beta;
  bool is_multiplied;  // the linear term, by the learning rate
  explicit Ftrl(const RowOptimizer& o)
      : rate(o.learning_rate),
        power(o.hyperparameters[0]),
        l1(o.hyperparameters[1]),
        l2(o.hyperparameters[2]),
        beta(o.hyperparameters[3]),
        is_multiplied(o.hyperparameters[4] != 0) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &accumulator = slots[0], &linear = slots[1];
    const T before = Raise(accumulator);
    accumulator = accumulator + g * g;
    const T after = Raise(accumulator);
    const T shift = (after - before) * w;
    T scale, bound;
    if (is_multiplied) {
      linear = linear + rate * g - shift;
      bound = Fill<T>(rate * l1);
      scale = after + beta + 2.0f * rate * l2;
    } else {
      linear = linear + g - shift / rate;
      bound = Fill<T>(l1);
      scale = (after + beta) / rate + 2.0f * l2;
    }
    const T quotient = (Clip(linear, -bound, bound) - linear) / scale;
    w = scale == T{} ? T{} : quotient;
  }

 private:
  template <class T>
  T Raise(T x) const {
    return power == 0.5f ? Sqrt(x) : Power(x, power);  // the root is many times as fast
  }
};

struct ProximalYogi {
  static constexpr int kNumSlots = 2;
  static constexpr bool kMayMoveUntouched = false;
  float rate, beta1, one_minus_beta1, one_minus_beta2, epsilon, l1, l2;
  explicit ProximalYogi(const RowOptimizer& o)
      : rate(o.learning_rate),
        beta1(o.hyperparameters[0]),
        one_minus_beta1(o.hyperparameters[1]),
        one_minus_beta2(o.hyperparameters[2]),
        epsilon(o.hyperparameters[3]),
        l1(o.hyperparameters[4]),
        l2(o.hyperparameters[5]) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &velocity = slots[0], &momentum = slots[1];
    const T square = g * g;
    velocity = velocity - one_minus_beta2 * Sign(velocity - square) * square;
    momentum = beta1 * momentum + one_minus_beta1 * g;
    const T scaled_rate = rate / (Sqrt(velocity) + epsilon);
    w = SoftThreshold(w - scaled_rate * momentum, scaled_rate, l1, l2);
  }
};

struct FrequencyEstimator {
  static constexpr int kNumSlots = 1;
  static constexpr bool kMayMoveUntouched = false;
  float tau, one_minus_tau, max_delta, outlier_threshold, step;
  explicit FrequencyEstimator(const RowOptimizer& o)
      : tau(o.hyperparameters[0]),
        one_minus_tau(o.hyperparameters[1]),
        max_delta(o.hyperparameters[2]),
        outlier_threshold(o.hyperparameters[3]),
        step(o.step) {}

  template <class T>
  void operator()(T, T& w, T* slots) const {
    T& last_hit_step = slots[0];
    const T delta = step - last_hit_step, most = Fill<T>(max_delta);
    const T distance = delta < most ? delta : most;
    w = delta >= outlier_threshold * w ? distance : one_minus_tau * w + tau * distance;
    last_hit_step = Fill<T>(step);
  }
};

}  // namespace
}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_RULES_H_
