"""The table `orders` of MySQL, kept by Spark's own AUTO CDC flow from the stream `mysql_cdc`.

The address, the account and the folder for the stream's state come from the environment. A row whose key is
changed at the source stays under its old key, too: AUTO CDC knows one row of each change. `penstock run` does
that itself.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.temporary_view
def order_changes() -> DataFrame:
    changes = (
        spark.readStream.format("mysql_cdc")
        .options(host=os.environ["SHOP_HOST"], port=os.environ["SHOP_PORT"])
        .options(user=os.environ["SHOP_USER"], password="${SHOP_PASSWORD}")
        .options(table="shop.orders", state=os.environ["SHOP_STATE"])
        .load()
    )
    # `read`, `insert`, `update_postimage` and `delete`: each has the row that counts from then on.
    return changes.where("_change_type NOT IN ('update_preimage', 'truncate')")


dp.create_streaming_table("orders")

dp.create_auto_cdc_flow(
    target="orders",
    source="order_changes",
    keys=["id"],
    sequence_by="_sequence",
    apply_as_deletes="_change_type = 'delete'",
    except_column_list=["_change_type", "_commit_timestamp", "_transaction", "_source_position"],
    stored_as_scd_type=1,
)
