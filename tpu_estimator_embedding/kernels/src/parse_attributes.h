// SPDX-License-Identifier: Apache-2.0
// The attributes of the op that parses Examples.
#ifndef TPU_ESTIMATOR_EMBEDDING_PARSE_ATTRIBUTES_H_
#define TPU_ESTIMATOR_EMBEDDING_PARSE_ATTRIBUTES_H_

#include <set>
#include <string>
#include <vector>

#include "attribute_checks.h"
#include "example_feature.h"

namespace tpu_estimator_embedding {

// Dense features come first, then ragged and sparse ones.
struct ParseAttributes {
  std::vector<ExampleFeature> features;
  std::vector<tensorflow::TensorShape> dense_shapes;
  int num_dense = 0, num_ragged = 0, num_sparse = 0;

  absl::Status Read(tensorflow::OpKernelConstruction* construction) {
    TF_RETURN_IF_ERROR(construction->GetAttr("num_sparse", &num_sparse));
    TF_RETURN_IF_ERROR(ReadKind(construction, "dense", &num_dense));
    TF_RETURN_IF_ERROR(ReadShapes(construction));
    TF_RETURN_IF_ERROR(ReadKind(construction, "ragged", &num_ragged));
    int num_sparse_keys;
    TF_RETURN_IF_ERROR(ReadKind(construction, "sparse", &num_sparse_keys));
    TF_RETURN_IF_ERROR(CheckCount("num_sparse", "sparse feature", num_sparse_keys, num_sparse));
    tensorflow::DataTypeVector split_types;
    TF_RETURN_IF_ERROR(construction->GetAttr("ragged_split_types", &split_types));
    TF_RETURN_IF_ERROR(
        CheckCount("ragged_split_types", "ragged feature", num_ragged, split_types.size()));
    std::set<std::string> keys;
    for (const ExampleFeature& feature : features) keys.insert(feature.key);
    return CheckCount("distinct keys", "feature", features.size(), keys.size());
  }

 private:
  static ValueType TypeOf(tensorflow::DataType type) {
    return type == tensorflow::DT_STRING  ? ValueType::kBytes
           : type == tensorflow::DT_FLOAT ? ValueType::kFloat
                                          : ValueType::kInt64;
  }

  absl::Status ReadKind(tensorflow::OpKernelConstruction* construction, const std::string& kind,
                        int* count) {
    std::vector<std::string> keys;
    tensorflow::DataTypeVector types;
    TF_RETURN_IF_ERROR(construction->GetAttr(kind + "_keys", &keys));
    TF_RETURN_IF_ERROR(construction->GetAttr(kind + "_types", &types));
    TF_RETURN_IF_ERROR(CheckCount(kind + "_types", "key", keys.size(), types.size()));
    for (size_t i = 0; i < keys.size(); ++i) {
      ExampleFeature feature;
      feature.key = keys[i];
      feature.type = TypeOf(types[i]);
      features.push_back(feature);
    }
    *count = keys.size();
    return absl::OkStatus();
  }

  absl::Status ReadShapes(tensorflow::OpKernelConstruction* construction) {
    std::vector<tensorflow::PartialTensorShape> shapes;
    TF_RETURN_IF_ERROR(construction->GetAttr("dense_shapes", &shapes));
    TF_RETURN_IF_ERROR(CheckCount("dense_shapes", "dense feature", num_dense, shapes.size()));
    for (int i = 0; i < num_dense; ++i) {
      tensorflow::TensorShape shape;
      if (!shapes[i].AsTensorShape(&shape)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "`dense_shapes` must be known completely, got ", shapes[i].DebugString(), "."));
      }
      dense_shapes.push_back(shape);
      features[i].is_dense = true;
      features[i].num_values = shape.num_elements();
    }
    return absl::OkStatus();
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PARSE_ATTRIBUTES_H_
