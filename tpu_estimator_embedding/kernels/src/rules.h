// SPDX-License-Identifier: Apache-2.0
// The update rules, as in the Python package's optimizers: one struct each.
// A struct has the name of the Python class, and the same names of slots and hyperparameters as the
// record of the class: the op rejects a table if they differ. Everything else is derived from the
// list at the end of this file. Python passes differences such as 1 - beta, computed in double
// precision.
//
// A rule changes weights and slots in place, in any number of lanes. g: gradient, w: weights.
#ifndef TPU_ESTIMATOR_EMBEDDING_RULES_H_
#define TPU_ESTIMATOR_EMBEDDING_RULES_H_

#include <cstring>
#include <type_traits>

#include "row_optimizer.h"
#include "vectors.h"

namespace tpu_estimator_embedding {
namespace {

// The names in a list such as "a, b".
constexpr int CountNames(const char* names) {
  int count = *names == 0 ? 0 : 1;
  for (; *names != 0; ++names) count += *names == ',';
  return count;
}

// The hyperparameters of a rule, by name, as `given`.
#define TPU_EMBEDDING_HYPERPARAMETERS(...)                      \
  static constexpr const char* kHyperparameters = #__VA_ARGS__; \
  struct Given {                                                \
    float __VA_ARGS__;                                          \
  } given

struct NoHyperparameters {
  static constexpr const char* kHyperparameters = "";
};

template <class Given>
inline Given ReadHyperparameters(const RowOptimizer& optimizer) {
  static_assert(std::is_trivially_copyable<Given>::value, "a struct of floats");
  static_assert(sizeof(Given) <= sizeof(optimizer.hyperparameters), "raise kMaxHyperparameters");
  Given given;
  std::memcpy(&given, optimizer.hyperparameters, sizeof(given));
  return given;
}

template <class T>
inline T SoftThreshold(T point, T rate, float l1, float l2) {
  const T beyond = Abs(point) - rate * l1;
  return Sign(point) * (beyond > T{} ? beyond : T{}) / (1.0f + rate * l2);
}

struct SGD : NoHyperparameters {
  static constexpr const char* kSlots = "";
  static constexpr bool kMayMoveUntouched = false;
  float rate;
  explicit SGD(const RowOptimizer& o) : rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T*) const {
    w = w - rate * g;
  }
};

struct Adagrad : NoHyperparameters {
  static constexpr const char* kSlots = "accumulators";
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
  static constexpr const char* kSlots = "accumulators";
  static constexpr bool kMayMoveUntouched = false;
  TPU_EMBEDDING_HYPERPARAMETERS(l1, l2);
  float rate;
  explicit ProximalAdagrad(const RowOptimizer& o)
      : given(ReadHyperparameters<Given>(o)), rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T& accumulator = slots[0];
    accumulator = accumulator + g * g;
    const T scaled_rate = rate / Sqrt(accumulator);
    w = SoftThreshold(w - scaled_rate * g, scaled_rate, given.l1, given.l2);
  }
};

struct AdagradMomentum {
  static constexpr const char* kSlots = "accumulators, momenta";
  static constexpr bool kMayMoveUntouched = false;
  TPU_EMBEDDING_HYPERPARAMETERS(momentum, power, kept, added, epsilon, use_nesterov);
  float rate;
  explicit AdagradMomentum(const RowOptimizer& o)
      : given(ReadHyperparameters<Given>(o)), rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &accumulator = slots[0], &momentum = slots[1];
    accumulator = given.kept * accumulator + given.added * (g * g);
    const T scaled = g * Power(accumulator + given.epsilon, given.power);
    momentum = given.momentum * momentum + scaled;
    w = w - rate * (given.use_nesterov != 0 ? given.momentum * momentum + scaled : momentum);
  }
};

struct Momentum {
  static constexpr const char* kSlots = "momenta";
  static constexpr bool kMayMoveUntouched = false;
  TPU_EMBEDDING_HYPERPARAMETERS(momentum, use_nesterov);
  float rate;
  explicit Momentum(const RowOptimizer& o)
      : given(ReadHyperparameters<Given>(o)), rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T& momentum = slots[0];
    momentum = given.momentum * momentum + g;
    w = w - rate * (given.use_nesterov != 0 ? g + given.momentum * momentum : momentum);
  }
};

struct RMSProp {
  static constexpr const char* kSlots = "ms, mom";
  static constexpr bool kMayMoveUntouched = false;
  TPU_EMBEDDING_HYPERPARAMETERS(one_minus_rho, momentum, epsilon);
  float rate;
  explicit RMSProp(const RowOptimizer& o)
      : given(ReadHyperparameters<Given>(o)), rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &mean_square = slots[0], &momentum = slots[1];
    mean_square = mean_square + given.one_minus_rho * (g * g - mean_square);
    momentum = given.momentum * momentum + rate / Sqrt(mean_square + given.epsilon) * g;
    w = w - momentum;
  }
};

struct Adam {
  static constexpr const char* kSlots = "momenta, velocities";
  static constexpr bool kMayMoveUntouched = true;
  // Under the root, epsilon is already squared.
  TPU_EMBEDDING_HYPERPARAMETERS(beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon,
                                sum_inside_sqrt);
  float rate;
  explicit Adam(const RowOptimizer& o)
      : given(ReadHyperparameters<Given>(o)), rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &momentum = slots[0], &velocity = slots[1];
    momentum = given.beta1 * momentum + given.one_minus_beta1 * g;
    velocity = given.beta2 * velocity + given.one_minus_beta2 * (g * g);
    const T root = given.sum_inside_sqrt != 0 ? Sqrt(velocity + given.epsilon)
                                              : Sqrt(velocity) + given.epsilon;
    w = w - rate * momentum / root;
  }
};

struct FTRL {
  static constexpr const char* kSlots = "accumulators, linears";
  static constexpr bool kMayMoveUntouched = false;
  TPU_EMBEDDING_HYPERPARAMETERS(power, l1, l2, beta, multiply_linear_by_learning_rate);
  float rate;
  explicit FTRL(const RowOptimizer& o)
      : given(ReadHyperparameters<Given>(o)), rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &accumulator = slots[0], &linear = slots[1];
    const T before = Raise(accumulator);
    accumulator = accumulator + g * g;
    const T after = Raise(accumulator);
    const T shift = (after - before) * w;
    T scale, bound;
    if (given.multiply_linear_by_learning_rate != 0) {
      linear = linear + rate * g - shift;
      bound = Fill<T>(rate * given.l1);
      scale = after + given.beta + 2.0f * rate * given.l2;
    } else {
      linear = linear + g - shift / rate;
      bound = Fill<T>(given.l1);
      scale = (after + given.beta) / rate + 2.0f * given.l2;
    }
    const T quotient = (Clip(linear, -bound, bound) - linear) / scale;
    w = scale == T{} ? T{} : quotient;
  }

 private:
  template <class T>
  T Raise(T x) const {
    return given.power == 0.5f ? Sqrt(x) : Power(x, given.power);  // the square root is much faster
  }
};

struct ProximalYogi {
  static constexpr const char* kSlots = "v, m";
  static constexpr bool kMayMoveUntouched = false;
  TPU_EMBEDDING_HYPERPARAMETERS(beta1, one_minus_beta1, one_minus_beta2, epsilon, l1, l2);
  float rate;
  explicit ProximalYogi(const RowOptimizer& o)
      : given(ReadHyperparameters<Given>(o)), rate(o.learning_rate) {}

  template <class T>
  void operator()(T g, T& w, T* slots) const {
    T &velocity = slots[0], &momentum = slots[1];
    const T square = g * g;
    velocity = velocity - given.one_minus_beta2 * Sign(velocity - square) * square;
    momentum = given.beta1 * momentum + given.one_minus_beta1 * g;
    const T scaled_rate = rate / (Sqrt(velocity) + given.epsilon);
    w = SoftThreshold(w - scaled_rate * momentum, scaled_rate, given.l1, given.l2);
  }
};

struct FrequencyEstimator {
  static constexpr const char* kSlots = "last_hit_step";
  static constexpr bool kMayMoveUntouched = false;
  TPU_EMBEDDING_HYPERPARAMETERS(tau, one_minus_tau, max_delta, outlier_threshold);
  float step;
  explicit FrequencyEstimator(const RowOptimizer& o)
      : given(ReadHyperparameters<Given>(o)), step(o.step) {}

  template <class T>
  void operator()(T, T& w, T* slots) const {
    T& last_hit_step = slots[0];
    const T delta = step - last_hit_step, most = Fill<T>(given.max_delta);
    const T distance = delta < most ? delta : most;
    w = delta >= given.outlier_threshold * w ? distance
                                             : given.one_minus_tau * w + given.tau * distance;
    last_hit_step = Fill<T>(step);
  }
};

}  // namespace
}  // namespace tpu_estimator_embedding

// All rules, in any order.
#define TPU_EMBEDDING_RULES(RULE) \
  RULE(SGD)                       \
  RULE(Adagrad)                   \
  RULE(ProximalAdagrad)           \
  RULE(AdagradMomentum)           \
  RULE(Momentum)                  \
  RULE(RMSProp)                   \
  RULE(Adam)                      \
  RULE(FTRL)                      \
  RULE(ProximalYogi)              \
  RULE(FrequencyEstimator)

#endif  // TPU_ESTIMATOR_EMBEDDING_RULES_H_
