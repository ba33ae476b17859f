# SPDX-License-Identifier: Apache-2.0
"""The entries of `tensorflow.python.util.tf_export` by which tensorflow-estimator exports names.

TensorFlow had them up to 2.15. The tables have TensorFlow's entries too.
"""

from tensorflow.python.util import tf_export

ESTIMATOR_API_NAME = "estimator"


def _with_estimator(attributes: dict[str, tf_export._Attributes], suffix: str
                    ) -> dict[str, tf_export._Attributes]:
    names = tf_export._Attributes(f"_estimator_api_names{suffix}",
                                  f"_estimator_api_constants{suffix}")
    return {**attributes, ESTIMATOR_API_NAME: names}


API_ATTRS = _with_estimator(tf_export.API_ATTRS, "")
API_ATTRS_V1 = _with_estimator(tf_export.API_ATTRS_V1, "_v1")
